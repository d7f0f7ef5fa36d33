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
  const uint64_t number = ++n_jobs_;
  const TextPool::JobId job =
      pool_->TryRun(caller.client, bytes, [this, id, number, loop = loop_, work = std::move(work)] {
        loop->Post([this, id, number, finish = work()] {
          const auto found = waiting_.find(id);
          if (found == waiting_.end() || found->second.number != number) return;  // not wanted
          waiting_.erase(found);
          finish();
        });
      });
  if (job == 0) return false;
  waiting_.insert_or_assign(id, Waiting{number, job});
  return true;
}

void TextCalls::OnGone(ExchangeId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  pool_->Drop(found->second.job);
  waiting_.erase(found);
}

}  // namespace baton
