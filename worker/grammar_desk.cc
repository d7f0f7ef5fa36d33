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

std::vector<PartRequest> GrammarDesk::Cancel(RequestId request, Epoch up_to) {
  std::vector<PartRequest> cancelled;
  std::erase_if(waiting_, [&](auto& waiting) {
    const bool is_meant =
        std::visit([&](const auto& of) { return of.request_id == request && of.epoch <= up_to; },
                   waiting.second);
    if (is_meant) cancelled.push_back(std::move(waiting.second));
    return is_meant;
  });
  return cancelled;
}

int GrammarDesk::CancelAllOf(RouterId router) {
  return static_cast<int>(std::erase_if(waiting_, [&](const auto& waiting) {
    return std::visit([&](const auto& of) { return RouterOf(of.request_id) == router; },
                      waiting.second);
  }));
}

}  // namespace baton
