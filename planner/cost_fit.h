// Fits the constants of PrefillCost to measured layers, one by one: least squares of
//   seconds = floor + token * tokens + pair * pairs,      none of the three negative,
// with forgetting, so that a machine that becomes slower or faster is followed after some tens of
// layers (docs/PLANNER.md, cost). A plain object, one thread.
#pragma once

#include "common/prefill_cost.h"
#include "planner/linear_fit.h"

namespace baton {

class CostFit {
 public:
  // begin: constants before the first measurement, with token > 0. Only token, pair and
  // extra_tokens change.
  // anchor: for how many layers' word the proportions of `begin` count, so that a few noisy layers,
  // or layers that are all alike, do not read all of their time as attention, or as the floor.
  explicit CostFit(const PrefillCost& begin, double anchor = 0);

  // Adds a measured layer: `tokens` of one prompt or several, `pairs` (PrefillCost::Pairs), and the
  // layer's time. Ignored unless all are finite, tokens and seconds positive, pairs not negative.
  void Add(double tokens, double pairs, double seconds);

  const PrefillCost& cost() const { return cost_; }

 private:
  PrefillCost cost_;
  LinearFit<3> fit_;  // floor, token, pair
};

}  // namespace baton
