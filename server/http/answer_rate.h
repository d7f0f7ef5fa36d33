// Judges whether a client takes its answers fast enough: in each window it must take so many bytes
// per second, or all that waited for it. Bytes are those that its machine has acknowledged, not
// those that the kernel here has taken: that holds megabytes, so a client that reads slowly can
// take far longer than the limit for them. (The kernel's own TCP_USER_TIMEOUT also ends clients
// that read, but keep a small window.) A plain object of one connection, on the loop's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

class AnswerRate {
 public:
  // bytes_per_second 0: some byte per window is enough.
  AnswerRate(absl::Duration window, int64_t bytes_per_second)
      : window_(window),
        per_window_(
            std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes_per_second) *
                                                      absl::ToDoubleSeconds(window)))) {}

  bool watching() const { return deadline_ != absl::InfiniteFuture(); }
  absl::Time deadline() const { return deadline_; }  // of the window; InfiniteFuture: none
  // A window begins. acknowledged: bytes so far; waiting: of them none has come, but is wanted.
  void Start(absl::Time now, int64_t acknowledged, int64_t waiting) {
    wanted_ = acknowledged + std::clamp<int64_t>(waiting, 1, per_window_);
    deadline_ = now + window_;
  }
  void Stop() { deadline_ = absl::InfiniteFuture(); }
  bool IsTooSlow(int64_t acknowledged) const { return acknowledged < wanted_; }

 private:
  const absl::Duration window_;
  const int64_t per_window_;
  int64_t wanted_ = 0;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace baton
