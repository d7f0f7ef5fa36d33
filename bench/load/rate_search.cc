#include "bench/load/rate_search.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace baton {

std::optional<double> RateSearch::Next() const {
  if (n_probes_ >= options_.max_probes) return std::nullopt;
  if (good_ == 0 && bad_ == 0) return std::max(options_.first, options_.min_rate);
  if (bad_ == 0) return 2 * good_;
  if (good_ == 0 && bad_ <= options_.min_rate) return std::nullopt;
  if (good_ == 0) return std::max(bad_ / 2, options_.min_rate);
  if (bad_ <= good_ * (1 + options_.precision)) return std::nullopt;
  return std::sqrt(good_ * bad_);
}

void RateSearch::Take(double good_share) {
  const std::optional<double> rate = Next();
  BATON_CHECK(rate.has_value());
  (good_share >= options_.wanted_good ? good_ : bad_) = *rate;
  ++n_probes_;
}

}  // namespace baton
