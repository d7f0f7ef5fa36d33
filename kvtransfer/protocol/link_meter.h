// Measures the speed of a link to one peer at its source: bytes acknowledged over the time in which
// there were bytes to carry. Inside a busy spell the time between two acknowledgements is the time
// of the second one's bytes, whatever the latency; for the first acknowledgement of a spell, one
// round trip is subtracted from the wait. If the window is too small for the latency, the link
// reads as slow as a handoff finds it, slower than its capacity. Old samples fade with busy time,
// not with their number, because one late answer may mean a link that became slow. Times are
// microseconds of one monotonic clock. Plain object; owner: LinkStats, link thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace baton {

class LinkMeter {
 public:
  // Bytes are under way from now on; none were before.
  void Began(int64_t now_us) {
    since_us_ = now_us;
    first_ = true;
  }
  // `bytes` were acknowledged while bytes were under way.
  void Acked(int64_t bytes, int64_t now_us) {
    int64_t took_us = now_us - since_us_;
    since_us_ = now_us;
    if (std::exchange(first_, false)) {
      if (bytes < kMinFirstBytes) return;  // too few bytes: mostly latency
      took_us -= round_trip_us();
    }
    const auto took = static_cast<double>(std::max<int64_t>(took_us, 0));
    const double kept = std::exp(-took / kMemoryUs);
    bytes_ = bytes_ * kept + static_cast<double>(bytes);
    time_us_ = time_us_ * kept + took;
    if (time_us_ <= kMemoryUs) return;
    bytes_ *= kMemoryUs / time_us_;  // bounds the weight of one long wait
    time_us_ = kMemoryUs;
  }
  // A message was answered on a link that was idle before.
  void Answered(int64_t round_trip_us) {
    const auto sample = static_cast<double>(round_trip_us);
    round_trip_us_ += round_trip_us_ == 0 ? sample : (sample - round_trip_us_) / 8;  // RFC 6298
  }

  // Both are 0 before the first sample.
  double bytes_per_second() const { return time_us_ > 0 ? bytes_ / time_us_ * 1e6 : 0; }
  int64_t round_trip_us() const { return static_cast<int64_t>(round_trip_us_); }

 private:
  static constexpr int64_t kMinFirstBytes = 64 << 10;
  static constexpr double kMemoryUs = 500'000;  // busy time that the samples cover

  int64_t since_us_ = 0;            // start of the spell, or the last acknowledgement in it
  bool first_ = true;               // no acknowledgement in this spell so far
  double bytes_ = 0, time_us_ = 0;  // faded sums over the samples
  double round_trip_us_ = 0;
};

}  // namespace baton
