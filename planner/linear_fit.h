// Fits the coefficients of a sum of terms to measured values, one by one:
//   value = sum over terms of coefficient * feature,      no coefficient below its least value,
// by least squares of relative errors, with forgetting: older values count less and less. What the
// recent values do not show stays as it was. A value far from what was fitted, as values usually
// are not, counts for less, the more so the smaller it is. A plain object, one thread.
#pragma once

#include <array>

namespace baton {

// kTerms: 3 or 4.
template <int kTerms>
class LinearFit {
 public:
  using Terms = std::array<double, kTerms>;
  struct Rules {
    Terms min{};        // coefficients
    double keep = .98;  // weight of a value after one more value: .98 means about fifty count
    // How much one value's word counts for less than what was fitted before, in values: more
    // smooths what the values hardly tell apart.
    double prior = 1e-6;
    // How much the proportions of `begin` count for, by term, in values: what values hardly tell
    // apart is near `begin` times the mean ratio of recent values to those that `begin` gives, by
    // about a unit times that ratio. 0: not at all.
    Terms anchor{};
  };

  // begin: coefficients before the first value. units: a positive coefficient of each term whose
  // part in a value is worth noticing.
  LinearFit(const Terms& begin, const Terms& units, const Rules& rules);

  // Adds a measured value. Ignored unless all are finite, no feature is negative, and the value is
  // positive.
  void Add(const Terms& features, double value);

  const Terms& coefficients() const { return coefficients_; }

 private:
  Terms Solve() const;
  // Best weights with the terms of `fixed` (bits) at their least; false: other terms would fall
  // below their least.
  bool SolveWith(unsigned fixed, Terms* weights) const;
  double Badness(const Terms& weights) const;
  double Anchor(int term) const { return rules_.anchor[term] / (speed_ * speed_); }
  // Returns how much a value counts for: 1, or less for an outlier.
  double TrustIn(const Terms& shares);

  const Terms units_;
  const Rules rules_;
  Terms min_, weights_;  // coefficients in units; weights_: as fitted last
  const Terms begin_;    // of weights_
  int n_values_ = 0;     // up to those that are trusted in any case
  double spread_ = 1;    // mean distance of recent values from the fit, in logarithms
  double speed_ = 1;     // geometric mean of recent values over those that begin_ gives
  // Weighted sums over all values, older ones with less weight: products of features with each
  // other, and the features, all as shares of the value.
  std::array<Terms, kTerms> products_{};
  Terms sums_{};
  Terms coefficients_;
};

extern template class LinearFit<3>;
extern template class LinearFit<4>;

}  // namespace baton
