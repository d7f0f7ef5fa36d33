// How often latencies of each size came in each of the last seconds: for percentiles and heat maps
// over time. Sizes are told apart to an eighth of their octave (6 to 12 %), which costs a few
// instructions per latency and 200 KB. Plain state, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace baton {

class LatencyWindows {
 public:
  static constexpr int64_t kSeconds = 120;
  LatencyWindows() : seconds_(kSeconds) {}

  // now: of any clock that only goes forward.
  void Add(absl::Duration latency, absl::Time now);

  static int64_t SecondOf(absl::Time now) { return absl::ToUnixSeconds(now); }
  // Calls use(floor, n) for each size that came in this second, ascending: n latencies of at least
  // `floor` microseconds, and less than the next eighth of its octave. Nothing: the second is
  // forgotten, or nothing came.
  template <typename Use>
  void ForEach(int64_t second, const Use& use) const {
    const Second& kept = seconds_[static_cast<size_t>(second % kSeconds)];
    if (kept.second != second) return;
    for (size_t size = 0; size < kSizes; ++size)
      if (kept.counts[size] > 0) use(FloorOf(size), kept.counts[size]);
  }

 private:
  static constexpr int kEighths = 8;
  static constexpr int kMaxOctave = 27;  // from 2^27 us = 134 s on all are one
  static constexpr size_t kSizes = (kMaxOctave - 2) * kEighths + 1;
  static size_t SizeOf(uint64_t us);
  static int64_t FloorOf(size_t size);

  struct Second {
    int64_t second = -1;  // -1: none yet
    std::array<uint32_t, kSizes> counts{};
  };
  std::vector<Second> seconds_;
};

}  // namespace baton
