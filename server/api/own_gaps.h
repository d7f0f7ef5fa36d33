// Whether the 99th percentile of a choice's own gaps between tokens is within a limit, as
// `baton bench load` judges it (bench/load/goodput.h): the percentile is linear between the two
// gaps around it. One of these is at most the limit and the other above it only where the number of
// gaps above leaves no other way, so that the largest below and the smallest above are all there is
// to keep. Plain data; no allocation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

struct OwnGaps {
  int64_t n = 0, n_above = 0;
  absl::Duration max_within = absl::ZeroDuration(), min_above = absl::InfiniteDuration();

  void Add(absl::Duration gap, absl::Duration limit) {
    ++n;
    if (gap <= limit) {
      max_within = std::max(max_within, gap);
    } else {
      ++n_above;
      min_above = std::min(min_above, gap);
    }
  }

  bool Meets(absl::Duration limit) const {
    if (n_above == 0) return true;
    const double at = 0.99 * static_cast<double>(n - 1);
    const auto below = static_cast<int64_t>(at);  // index of the gap below the percentile
    const int64_t n_within = n - n_above;
    if (below + 1 < n_within) return true;
    if (below >= n_within) return false;
    const double part = at - static_cast<double>(below);
    if (part == 0) return true;  // it is this gap, which may be the last one
    return max_within + part * (min_above - max_within) <= limit;
  }
};

}  // namespace baton
