#include "tests/e2e/chaos/stall.h"

#include <algorithm>

namespace baton {
namespace {

// Returns the gap between two tokens around the moment; zero: the moment is before the first or
// after the last token.
absl::Duration GapAt(const std::vector<absl::Time>& times, absl::Time moment) {
  const auto next = std::upper_bound(times.begin(), times.end(), moment);
  if (next == times.begin() || next == times.end()) return absl::ZeroDuration();
  return *next - *(next - 1);
}

}  // namespace

Stalls FindStalls(const std::vector<ExchangeRecord>& exchanges,
                  const std::vector<FaultRecord>& faults) {
  Stalls stalls;
  for (const ExchangeRecord& exchange : exchanges) {
    absl::Duration longest;
    for (const FaultRecord& fault : faults) {
      if (fault.kind != FaultKind::kKill) continue;
      longest = std::max(longest, GapAt(exchange.token_times, fault.at));
    }
    if (longest == absl::ZeroDuration()) continue;
    stalls.gap_s.push_back(absl::ToDoubleSeconds(longest));
    stalls.excess_s.push_back(absl::ToDoubleSeconds(longest - exchange.prefilled_again));
  }
  return stalls;
}

}  // namespace baton
