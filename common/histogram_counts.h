// Counts of values by size, as a Prometheus histogram shows them: what a thread fills that must not
// wait for who reads metrics. Plain data, copied as a whole; no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

struct HistogramCounts {
  static constexpr size_t kMaxBounds = 40;

  // Upper bounds, ascending, at most kMaxBounds, without +Inf; they outlive the counts.
  std::span<const double> bounds;
  std::array<uint64_t, kMaxBounds + 1>
      counts{};  // of each bucket alone; the last: beyond all bounds
  double sum = 0;

  void Observe(double value) {
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    ++counts[static_cast<size_t>(bucket)];
    sum += value;
  }
};

}  // namespace baton
