#include "server/access/token_bucket.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// A shorter wait would be none in headers.
constexpr absl::Duration kMinWait = absl::Milliseconds(1);

}  // namespace

void TokenBucket::Fill(absl::Time now) {
  const absl::Duration passed = now - std::exchange(filled_, std::max(filled_, now));
  if (passed <= absl::ZeroDuration()) return;
  // A bucket that is full stays full however long it was; the first time is infinitely long ago.
  level_ = passed == absl::InfiniteDuration()
               ? level_
               : std::min(capacity_, level_ + per_second_ * absl::ToDoubleSeconds(passed));
}

void TokenBucket::SetLimit(double per_second, double capacity, absl::Time now) {
  Fill(now);
  const double used = per_second_ > 0 ? capacity_ - level_ : 0;
  per_second_ = per_second;
  capacity_ = capacity;
  level_ = capacity - used;
}

absl::Duration TokenBucket::WaitFor(double amount, absl::Time now) {
  if (per_second_ <= 0) return absl::ZeroDuration();
  Fill(now);
  const double missing = std::min(amount, capacity_) - level_;
  if (missing <= 0) return absl::ZeroDuration();
  return std::max(kMinWait, absl::Seconds(missing / per_second_));
}

void TokenBucket::Take(double amount, absl::Time now) {
  if (per_second_ <= 0) return;
  Fill(now);
  level_ -= amount;
}

}  // namespace baton
