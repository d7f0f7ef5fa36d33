#include "router/mixed_steps.h"

#include <algorithm>

namespace baton {

MixedSteps::MixedSteps(const StepCost& cost, const RowSums& rows, double itl_stretch,
                       double min_share)
    : cost_(cost),
      rows_(rows),
      plain_(cost.Seconds(rows.rows, static_cast<double>(rows.keys))),
      share_(std::max((itl_stretch - 1) * plain_, cost.beside * min_share)),
      rate_(share_ > 0 ? share_ / (plain_ + share_) / std::max(cost.beside, 1e-9) : 1),
      rows_end_(rows.mean_left() * (plain_ + share_)) {}

double MixedSteps::Slowed(double work) const {
  if (rows_.rows == 0) return work;
  const double beside = std::min(work, rows_end_ * rate_);
  return beside / rate_ + (work - beside);
}

double MixedSteps::Lost(double work) const { return rows_.rows * LostBy(rows_.mean_left(), work); }

double MixedSteps::LostBy(double tokens, double work) const {
  return std::min(cost_.beside * work, tokens * share_);
}

}  // namespace baton
