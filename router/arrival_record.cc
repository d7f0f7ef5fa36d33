#include "router/arrival_record.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace baton {
namespace {

constexpr absl::Duration kMemory = absl::Seconds(20);  // work this old counts for 1 / e

}  // namespace

int ArrivalRecord::ClassOf(int64_t tokens) {
  return std::min(
      static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(tokens, 0)))),
      kClasses - 1);
}

double ArrivalRecord::WeightAt(absl::Time now) const {
  return at_ == absl::InfinitePast() ? 0 : std::exp(-absl::FDivDuration(now - at_, kMemory));
}

void ArrivalRecord::Add(const PrefillWork& work, absl::Time now) {
  const double weight = WeightAt(now);
  for (Rate& sum : recent_) sum = {.tokens = weight * sum.tokens, .pairs = weight * sum.pairs};
  at_ = now;
  Rate& sum = recent_[static_cast<size_t>(ClassOf(work.tokens))];
  sum.tokens += static_cast<double>(work.tokens);
  sum.pairs += work.pairs;
}

ArrivalRecord::Rate ArrivalRecord::Shorter(int64_t tokens, absl::Time now) const {
  const double per_second = WeightAt(now) / absl::ToDoubleSeconds(kMemory);
  Rate rate;
  for (int i = 0; i < ClassOf(tokens); ++i) {
    rate.tokens += per_second * recent_[static_cast<size_t>(i)].tokens;
    rate.pairs += per_second * recent_[static_cast<size_t>(i)].pairs;
  }
  return rate;
}

}  // namespace baton
