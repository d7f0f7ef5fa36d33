// A limit of so much per second on average: a bucket that fills at that rate and is drained by what
// is used. A plain object of one thread; `now` is of MonotonicNow.
#pragma once

#include "absl/time/time.h"

namespace baton {

class TokenBucket {
 public:
  // Full at first. per_second 0: no limit. capacity: what may be used at once.
  TokenBucket(double per_second, double capacity)
      : per_second_(per_second), capacity_(capacity), level_(capacity) {}

  // Other limits from now on: of what was used, nothing is forgotten.
  void SetLimit(double per_second, double capacity, absl::Time now);
  // Zero: `amount` fits; else the time until it does if nothing else is taken. More than the
  // capacity fits into a full bucket, which then owes the rest.
  absl::Duration WaitFor(double amount, absl::Time now);
  // Takes whether it fits or not: what is known only after the fact is owed.
  void Take(double amount, absl::Time now);

 private:
  void Fill(absl::Time now);

  double per_second_, capacity_, level_;  // level_: below zero if it owes
  absl::Time filled_ = absl::InfinitePast();
};

}  // namespace baton
