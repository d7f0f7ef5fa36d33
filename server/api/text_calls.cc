#include "server/api/text_calls.h"

#include <memory>
#include <utility>

namespace baton {

void TextCalls::Run(ApiCall call, Work work, HttpReply busy, Reply reply) {
  std::string body = std::move(call.request.body);
  if (static_cast<int64_t>(body.size()) <= inline_bytes_) {
    reply(call, work(body));
    return;
  }
  const ExchangeId id = call.exchange;
  const TextPool::JobId job =
      pool_->TryRun([this, id, loop = loop_, body = std::move(body), work = std::move(work)] {
        auto made = std::make_shared<HttpReply>(work(body));
        loop->Post([this, id, made] {
          const auto found = waiting_.find(id);
          if (found == waiting_.end()) return;  // gone meanwhile
          const Waiting done = std::move(found->second);
          waiting_.erase(found);
          done.reply(done.call, std::move(*made));
        });
      });
  if (job == 0) {
    reply(call, std::move(busy));
    return;
  }
  waiting_.emplace(id, Waiting{std::move(call), std::move(reply), job});
}

void TextCalls::OnGone(ExchangeId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  pool_->Drop(found->second.job);
  waiting_.erase(found);
}

}  // namespace baton
