#include "worker/grammar_desk.h"

#include <utility>

#include "common/check.h"

namespace baton {

PartKey PartOf(const RouterMessage& message) {
  if (const auto* prefill = std::get_if<PrefillRequest>(&message))
    return {prefill->request_id, prefill->epoch, true};
  const auto* decode = std::get_if<DecodeRequest>(&message);
  BATON_CHECK(decode != nullptr);
  return {decode->request_id, decode->epoch, false};
}

const GrammarSpec& GrammarOf(const RouterMessage& message) {
  if (const auto* prefill = std::get_if<PrefillRequest>(&message)) return prefill->sampling.grammar;
  const auto* decode = std::get_if<DecodeRequest>(&message);
  BATON_CHECK(decode != nullptr);
  return decode->sampling.grammar;
}

GrammarJob GrammarDesk::Add(RouterMessage message) {
  BATON_CHECK(!is_full());
  GrammarJob job{.id = next_job_++, .spec = GrammarOf(message)};
  waiting_.emplace(job.id, std::move(message));
  return job;
}

std::optional<RouterMessage> GrammarDesk::Take(uint64_t job) {
  const auto found = waiting_.find(job);
  if (found == waiting_.end()) return std::nullopt;
  RouterMessage message = std::move(found->second);
  waiting_.erase(found);
  return message;
}

std::vector<PartKey> GrammarDesk::Cancel(RequestId request, Epoch up_to) {
  std::vector<PartKey> cancelled;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const PartKey part = PartOf(it->second);
    const bool is_meant = part.request_id == request && part.epoch <= up_to;
    if (is_meant) cancelled.push_back(part);
    it = is_meant ? waiting_.erase(it) : std::next(it);
  }
  return cancelled;
}

}  // namespace baton
