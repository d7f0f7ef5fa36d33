#include "router/mixed_steps.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kRounding = 1e-6;

// Returns the tokens that the last of the rows has left, these being spread evenly around their
// mean.
double LastLeft(const RowSums& rows) {
  return rows.mean_left() * 2 * rows.rows / (rows.rows + 1.0);
}

}  // namespace

MixedSteps::MixedSteps(const StepCost& cost, const RowSums& rows, double itl_stretch,
                       double min_share)
    : cost_(cost),
      rows_(rows),
      plain_(cost.Seconds(rows.rows, static_cast<double>(rows.keys))),
      share_(std::max((itl_stretch - 1) * plain_, cost.beside * min_share)),
      rate_(share_ > 0 ? share_ / (plain_ + share_) / std::max(cost.beside, 1e-9) : 1),
      rows_end_(LastLeft(rows) * (plain_ + share_)) {}

double MixedSteps::Slowed(const PromptSeconds& prompts) const {
  const auto& [work, alone] = prompts;
  if (rows_.rows == 0 || work <= 0) return alone;
  const double beside = rows_end_ * rate_;
  if (work > beside) return rows_end_ + (work - beside) * alone / work;
  const double steps = std::ceil(work / (rate_ * (plain_ + share_)) - kRounding);
  return std::min(steps * plain_ + cost_.beside * work, rows_end_);
}

RowSums MixedSteps::After(double seconds) const {
  if (rows_.rows == 0 || seconds >= rows_end_) return {};
  RowSums after = rows_;
  const double steps = seconds / (plain_ + share_);
  after.tokens_left =
      std::max<int64_t>(rows_.rows, rows_.tokens_left - static_cast<int64_t>(steps * rows_.rows));
  return after;
}

double MixedSteps::Lost(double work) const { return rows_.rows * LostBy(rows_.mean_left(), work); }

double MixedSteps::LostBy(double tokens, double work) const {
  return std::min(cost_.beside * work, MaxLostBy(tokens));
}

}  // namespace baton
