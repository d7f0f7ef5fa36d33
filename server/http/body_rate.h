// Judges whether a request's body comes fast enough, over a sliding window: bytes from before the
// window buy no time. A plain object of one connection, on the loop's thread; `now` is of
// MonotonicNow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "absl/time/time.h"

namespace baton {

inline constexpr double kMinBodyBytesPerSecond = 1024;

class BodyRate {
 public:
  // window: the bytes of so much time count, give or take an eighth. grace: no body is too slow
  // before so much time has passed.
  BodyRate(absl::Duration window, absl::Duration grace)
      : window_(window), grace_(std::min(grace, window)) {}

  void Start(absl::Time now);  // a body begins
  void Add(absl::Time now, size_t n_bytes);
  // Called every look_every(), also while no bytes come.
  bool IsTooSlow(absl::Time now);
  absl::Duration look_every() const { return window_ / 8; }

 private:
  struct Mark {
    absl::Time since;  // bytes of look_every() from here on
    size_t n_bytes;
  };
  const absl::Duration window_, grace_;
  absl::Time start_;
  std::deque<Mark> marks_;
  size_t n_bytes_ = 0;  // of all marks
};

}  // namespace baton
