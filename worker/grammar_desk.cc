#include "worker/grammar_desk.h"

#include <utility>

#include "common/check.h"
#include "proto/refusal.h"

namespace baton {

PartEnded RefusalOf(const PartRequest& request, const absl::Status& why, PartFault fault) {
  return std::visit([&](const auto& of) { return RefusalOf(of, why, fault); }, request);
}

const GrammarSpec& GrammarOf(const PartRequest& request) {
  return std::visit([](const auto& of) -> const GrammarSpec& { return of.sampling.grammar; },
                    request);
}

GrammarJob GrammarDesk::Add(PartRequest request) {
  BATON_CHECK(!is_full());
  GrammarJob job{.id = next_job_++, .spec = GrammarOf(request)};
  waiting_.emplace(job.id, std::move(request));
  return job;
}

std::optional<PartRequest> GrammarDesk::Take(uint64_t job) {
  auto taken = waiting_.extract(job);
  if (taken.empty()) return std::nullopt;
  return std::move(taken.mapped());
}

std::vector<PartEnded> GrammarDesk::Cancel(RequestId request, Epoch up_to) {
  std::vector<PartEnded> ended;
  std::erase_if(waiting_, [&](const auto& waiting) {
    PartEnded end = RefusalOf(waiting.second, absl::OkStatus(), PartFault::kOwn);
    if (end.request_id != request || end.epoch > up_to) return false;
    end.reason = EndReason::kCancelled;
    ended.push_back(std::move(end));
    return true;
  });
  return ended;
}

}  // namespace baton
