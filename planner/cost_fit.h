// The constants of PrefillCost from measured layers, fitted as they come: least squares of
//   seconds = floor + token * tokens + pair * pairs,      none of the three negative,
// with forgetting, so that a machine that becomes slower or faster is believed after some tens of
// layers. A plain object; its owner's thread.
#pragma once

#include <array>

#include "planner/prefill_cost.h"

namespace baton {

class CostFit {
 public:
  // begin: what is believed before anything was measured; n_layers, head, kv_bytes and kernel are
  // kept as they are.
  explicit CostFit(const PrefillCost& begin);

  // A layer of so many tokens, of one prompt or several, and so many pairs (PrefillCost::Pairs)
  // took so long. Ignored unless all are finite, tokens and seconds positive.
  void Add(double tokens, double pairs, double seconds);

  const PrefillCost& cost() const { return cost_; }
  int n_layers_seen() const { return n_seen_; }
  // How far recent layers were from what was predicted for them: mean of |actual / predicted - 1|.
  double error() const { return error_; }

 private:
  static constexpr int kTerms = 3;  // floor, token, pair
  using Terms = std::array<double, kTerms>;
  Terms Solve() const;
  // The best with the terms of `fixed` (bits) at their least; false: it would make others less.
  bool SolveWith(unsigned fixed, Terms* weights) const;
  double Badness(const Terms& weights) const;

  Terms unit_;   // seconds: what a weight of one means
  Terms prior_;  // weights believed before the first layer
  // Of all layers so far, the older the less: products of features with each other, and their sums.
  std::array<Terms, kTerms> products_{};
  Terms sums_{};
  PrefillCost cost_;
  int n_seen_ = 0;
  double error_ = 0;
};

}  // namespace baton
