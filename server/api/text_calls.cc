#include "server/api/text_calls.h"

#include <utility>

namespace baton {

bool TextCalls::Run(const Caller& caller, std::string body, Work work) {
  if (static_cast<int64_t>(body.size()) <= inline_bytes_) {
    work(body)();
    return true;
  }
  const size_t bytes = body.size();
  return RunOnPool(caller, bytes,
                   [body = std::move(body), work = std::move(work)] { return work(body); });
}

bool TextCalls::RunOnPool(const Caller& caller, size_t bytes, std::function<Finish()> work) {
  const ExchangeId id = caller.exchange;
  const TextPool::JobId job =
      pool_->TryRun(caller.client, bytes, [this, id, loop = loop_, work = std::move(work)] {
        loop->Post([this, id, finish = work()] {
          if (waiting_.erase(id) > 0) finish();  // else gone meanwhile
        });
      });
  if (job == 0) return false;
  waiting_.emplace(id, job);
  return true;
}

void TextCalls::OnGone(ExchangeId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  pool_->Drop(found->second);
  waiting_.erase(found);
}

}  // namespace baton
