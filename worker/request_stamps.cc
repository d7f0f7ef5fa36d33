#include "worker/request_stamps.h"

#include <algorithm>
#include <variant>

namespace baton {

void StampArrival(RouterEvent* event, absl::Time now) {
  auto* const arrived = std::get_if<RouterMessages>(event);
  if (arrived == nullptr) return;
  for (RouterMessage& message : arrived->messages)
    if (auto* const request = std::get_if<PrefillRequest>(&message)) request->received = now;
}

void StampReport(WorkerReport* report, absl::Time now) {
  for (WorkerEvent& event : report->events) {
    auto* const prompt = std::get_if<PromptComputed>(&event);
    if (prompt == nullptr || prompt->computed == absl::UnixEpoch()) continue;
    prompt->draw_us = std::max<int64_t>(0, absl::ToInt64Microseconds(now - prompt->computed));
  }
}

}  // namespace baton
