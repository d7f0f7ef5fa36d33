// Fits the constants of PrefillCost to measured layers, one by one: least squares of
//   seconds = floor + token * tokens + pair * pairs,      none of the three negative,
// with forgetting, so that a machine that becomes slower or faster is followed after some tens of
// layers (docs/PLANNER.md, cost). A plain object, one thread.
#pragma once

#include <array>

#include "common/prefill_cost.h"

namespace baton {

class CostFit {
 public:
  // begin: constants before the first measurement, with token > 0. Only token, pair and
  // extra_tokens change.
  explicit CostFit(const PrefillCost& begin);

  // Adds a measured layer: `tokens` of one prompt or several, `pairs` (PrefillCost::Pairs), and the
  // layer's time. Ignored unless all are finite, tokens and seconds positive, pairs not negative.
  void Add(double tokens, double pairs, double seconds);

  const PrefillCost& cost() const { return cost_; }

 private:
  static constexpr int kTerms = 3;  // floor, token, pair
  using Terms = std::array<double, kTerms>;
  Terms Solve() const;
  // Best weights with the terms of `fixed` (bits) at their minimum; false: other terms would fall
  // below their minimum.
  bool SolveWith(unsigned fixed, Terms* weights) const;
  double Badness(const Terms& weights) const;

  Terms unit_;   // seconds per unit of each weight
  Terms prior_;  // weights before the first layer
  // Weighted sums over all layers, older ones with less weight: products of features with each
  // other, and the features.
  std::array<Terms, kTerms> products_{};
  Terms sums_{};
  PrefillCost cost_;
};

}  // namespace baton
