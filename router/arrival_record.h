// How much prefill comes to a worker per second, by the length of prompts: those that come while a
// prompt waits, and are shorter, go first. A plain object, one thread.
#pragma once

#include <array>

#include "absl/time/time.h"
#include "router/prefill_work.h"

namespace baton {

class ArrivalRecord {
 public:
  void Add(const PrefillWork& work, absl::Time now);
  struct Rate {
    double tokens = 0, pairs = 0;
  };
  // Work per second, as recent prompts brought it that are shorter than the greatest power of two
  // within `tokens`: they go before such a prompt even when some of it is computed.
  Rate Shorter(int64_t tokens, absl::Time now) const;

 private:
  static constexpr int kClasses = 24;  // by powers of two
  static int ClassOf(int64_t tokens);
  double WeightAt(absl::Time now) const;

  std::array<Rate, kClasses> recent_{};  // sums, older work counts for less
  absl::Time at_ = absl::InfinitePast();
};

}  // namespace baton
