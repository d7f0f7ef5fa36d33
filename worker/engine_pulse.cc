#include "worker/engine_pulse.h"

#include <algorithm>

namespace baton {
namespace {

constexpr absl::Duration kMaxExpected = absl::Hours(1);

}  // namespace

void EnginePulse::Begin(absl::Time now) {
  std::lock_guard lock(mutex_);
  ++turns_;
  since_ = now;
  expected_ = absl::ZeroDuration();
}

void EnginePulse::Expect(absl::Duration more) {
  std::lock_guard lock(mutex_);
  expected_ = std::min(expected_ + more, kMaxExpected);
}

void EnginePulse::Rest() {
  std::lock_guard lock(mutex_);
  since_ = absl::InfiniteFuture();
}

EngineTurn EnginePulse::Read(absl::Time now) const {
  std::lock_guard lock(mutex_);
  EngineTurn turn{.turns = turns_};
  if (since_ == absl::InfiniteFuture()) return turn;
  turn.age_us = std::max<int64_t>(1, absl::ToInt64Microseconds(now - since_));
  turn.expected_us = absl::ToInt64Microseconds(expected_);
  return turn;
}

}  // namespace baton
