// Whether a running relay is worth its slowest link, when it is late. Pure functions of numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/time/time.h"

namespace baton {

// The way from one rank of a relay to the next, as its sender measured it lately.
struct HopProgress {
  int64_t bytes = 0;            // of KV that are to cross it
  int64_t crossed = 0;          // of them
  double bytes_per_second = 0;  // 0: not measured
};

// When a relay is so late that its links are looked at: half as long again as predicted.
absl::Duration LateAfter(absl::Duration predicted);

// The hop that keeps the relay longest, if what is left of its KV takes so much longer than one
// worker alone, from now on, that it is better to aim anew: half as long again. Time to compute is
// on top of what a link takes, so staying is never taken to be dearer than it is.
std::optional<size_t> HopToLeave(std::span<const HopProgress> hops, absl::Duration alone);
// Of what is left.
absl::Duration TimeLeft(const HopProgress& hop);

}  // namespace baton
