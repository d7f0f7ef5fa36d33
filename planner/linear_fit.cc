#include "planner/linear_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr int kTrusted = 8;  // first values, before which nothing usual is known
constexpr double kNewest =
    .1;                     // weight of the newest value in means, or one part of the first ones
constexpr double kFar = 2;  // times the mean distance: values beyond that count for less
constexpr double kMinSpread = .05, kMaxDistance = 2;

template <typename Terms>
double Dot(const Terms& a, const Terms& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

template <typename Terms>
Terms Quotients(const Terms& a, const Terms& b) {
  Terms quotients;
  for (size_t i = 0; i < a.size(); ++i) quotients[i] = a[i] / b[i];
  return quotients;
}

}  // namespace

template <int kTerms>
LinearFit<kTerms>::LinearFit(const Terms& begin, const Terms& units, const Rules& rules)
    : units_(units),
      rules_(rules),
      min_(Quotients(rules.min, units)),
      weights_(Quotients(begin, units)),
      begin_(weights_),
      coefficients_(begin) {
  for (int i = 0; i < kTerms; ++i) BATON_CHECK(units[i] > 0 && begin[i] >= rules.min[i]);
}

// A machine that has changed moves the mean distance, too, so its values are soon trusted.
template <int kTerms>
double LinearFit<kTerms>::TrustIn(const Terms& shares) {
  n_values_ = std::min(n_values_ + 1, kTrusted + 1);
  const double newest = std::max(kNewest, 1.0 / n_values_);
  if (const double begun = Dot(begin_, shares); begun > 0)
    speed_ *= std::pow(1 / (begun * speed_), newest);
  const double fitted = Dot(weights_, shares);  // as a share of the value
  const double distance =
      fitted > 0 ? std::min(std::abs(std::log(fitted)), kMaxDistance) : kMaxDistance;
  const double usual = kFar * std::max(spread_, kMinSpread);
  spread_ += newest * (distance - spread_);
  if (n_values_ <= kTrusted || distance <= usual) return 1;
  // Errors of a value that is much too small count relative to what was fitted: relative to the
  // value, which may be near nothing, one would count for more than all others.
  const double excess = std::max(1.0, fitted);
  return usual / distance / (excess * excess);
}

template <int kTerms>
void LinearFit<kTerms>::Add(const Terms& features, double value) {
  if (!(value > 0 && std::isfinite(value))) return;
  // Errors are relative to the value, so that small ones count as much as large ones.
  Terms shares;
  for (int i = 0; i < kTerms; ++i) {
    if (!(features[i] >= 0 && std::isfinite(features[i]))) return;
    shares[i] = features[i] * units_[i] / value;
  }
  const double trust = TrustIn(shares);
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j)
      products_[i][j] = rules_.keep * products_[i][j] + trust * shares[i] * shares[j];
    sums_[i] = rules_.keep * sums_[i] + trust * shares[i];
  }
  weights_ = Solve();
  for (int i = 0; i < kTerms; ++i) coefficients_[i] = weights_[i] * units_[i];
}

// Some of the terms may be at their least: all cases are tried.
template <int kTerms>
typename LinearFit<kTerms>::Terms LinearFit<kTerms>::Solve() const {
  Terms best = weights_;
  double min_badness = std::numeric_limits<double>::infinity();
  for (unsigned fixed = 0; fixed < 1u << kTerms; ++fixed) {
    Terms weights;
    if (!SolveWith(fixed, &weights)) continue;
    const double badness = Badness(weights);
    if (badness < min_badness) {
      min_badness = badness;
      best = weights;
    }
  }
  return best;
}

template <int kTerms>
bool LinearFit<kTerms>::SolveWith(unsigned fixed, Terms* weights) const {
  const auto is_fixed = [&](int i) { return (fixed >> i & 1) != 0; };
  std::array<std::array<double, kTerms + 1>, kTerms> rows{};  // rows of the normal equations
  for (int i = 0; i < kTerms; ++i) {
    if (is_fixed(i)) {
      rows[i][i] = 1;
      rows[i][kTerms] = min_[i];
      continue;
    }
    for (int j = 0; j < kTerms; ++j) rows[i][j] = products_[i][j];
    rows[i][i] += rules_.prior + Anchor(i);
    rows[i][kTerms] = sums_[i] + rules_.prior * weights_[i] + Anchor(i) * speed_ * begin_[i];
  }
  for (int i = 0; i < kTerms; ++i) {  // Gauss-Jordan; the prior keeps pivots from zero
    int pivot = i;
    for (int r = i + 1; r < kTerms; ++r)
      if (std::abs(rows[r][i]) > std::abs(rows[pivot][i])) pivot = r;
    std::swap(rows[i], rows[pivot]);
    for (int r = 0; r < kTerms; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (int c = i; c <= kTerms; ++c) rows[r][c] -= factor * rows[i][c];
    }
  }
  for (int i = 0; i < kTerms; ++i) {
    (*weights)[i] = rows[i][kTerms] / rows[i][i];
    if (!((*weights)[i] >= min_[i])) return false;
  }
  return true;
}

template <int kTerms>
double LinearFit<kTerms>::Badness(const Terms& weights) const {
  double badness = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) badness += weights[i] * products_[i][j] * weights[j];
    const double moved = weights[i] - weights_[i], off = weights[i] - speed_ * begin_[i];
    badness += rules_.prior * moved * moved + Anchor(i) * off * off - 2 * sums_[i] * weights[i];
  }
  return badness;
}

template class LinearFit<3>;
template class LinearFit<4>;

}  // namespace baton
