// Decides whether a late relay is worth its slowest link (docs/PLANNER.md). Pure functions of
// numbers, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/time/time.h"

namespace baton {

// The link from one rank of a relay to the next, as the sender measured it last.
struct HopProgress {
  int64_t bytes = 0;            // KV that must cross the link
  int64_t crossed = 0;          // KV that has crossed it
  double bytes_per_second = 0;  // 0: unknown
};

// A relay's links are examined after one and a half times the predicted time and 100 ms.
absl::Duration LateAfter(absl::Duration predicted);

// Returns the hop that keeps the relay longest, if the rest of the hop's KV takes more than one and
// a half times as long as one worker alone from now on; else nullopt. Computing comes on top of
// what a link takes, so the cost of staying is never overstated.
std::optional<size_t> HopToLeave(std::span<const HopProgress> hops, absl::Duration alone);
// Time in which the rest of the hop's KV crosses; 0 if the link's rate is unknown.
absl::Duration TimeLeft(const HopProgress& hop);

}  // namespace baton
