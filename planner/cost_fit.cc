#include "planner/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kKeep = 0.98;   // weight of a layer after one more layer: about fifty count
constexpr double kPrior = 1e-6;  // weight of the constants before the first layer
// Units of terms that may fit as zero: the floor in tokens, a pair as a share of a token.
constexpr double kFloorTokens = 50, kPairShare = 1e-5;
constexpr std::array<double, 3> kMin = {0, 1e-3, 0};  // weights

}  // namespace

CostFit::CostFit(const PrefillCost& begin)
    : unit_{kFloorTokens * begin.token, begin.token,
            begin.pair > 0 ? begin.pair : kPairShare * begin.token},
      prior_{begin.extra_tokens / kFloorTokens, 1, begin.pair / unit_[2]},
      cost_(begin) {
  BATON_CHECK(begin.token > 0 && begin.pair >= 0);
}

void CostFit::Add(double tokens, double pairs, double seconds) {
  if (!(tokens > 0 && pairs >= 0 && seconds > 0)) return;
  if (!std::isfinite(tokens + pairs + seconds)) return;
  // Errors are relative to the layer's time, so that short slices count as much as long ones.
  const Terms features = {unit_[0] / seconds, tokens * unit_[1] / seconds,
                          pairs * unit_[2] / seconds};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      products_[i][j] = kKeep * products_[i][j] + features[i] * features[j];
    }
    sums_[i] = kKeep * sums_[i] + features[i];
  }
  const Terms weights = Solve();
  cost_.token = weights[1] * unit_[1];
  cost_.pair = weights[2] * unit_[2];
  cost_.extra_tokens = weights[0] * unit_[0] / cost_.token;
}

// Some of the three terms may be at their minimum: all eight cases are tried.
CostFit::Terms CostFit::Solve() const {
  Terms best = prior_;
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

bool CostFit::SolveWith(unsigned fixed, Terms* weights) const {
  const auto is_fixed = [&](int i) { return (fixed >> i & 1) != 0; };
  std::array<std::array<double, kTerms + 1>, kTerms> rows{};  // rows of the normal equations
  for (int i = 0; i < kTerms; ++i) {
    if (is_fixed(i)) {
      rows[i][i] = 1;
      rows[i][kTerms] = kMin[i];
      continue;
    }
    for (int j = 0; j < kTerms; ++j) rows[i][j] = products_[i][j] + (i == j ? kPrior : 0);
    rows[i][kTerms] = sums_[i] + kPrior * prior_[i];
  }
  for (int i = 0; i < kTerms; ++i) {  // Gauss-Jordan; the prior keeps pivots from zero
    int pivot = i;
    for (int r = i + 1; r < kTerms; ++r) {
      if (std::abs(rows[r][i]) > std::abs(rows[pivot][i])) pivot = r;
    }
    std::swap(rows[i], rows[pivot]);
    for (int r = 0; r < kTerms; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (int c = i; c <= kTerms; ++c) rows[r][c] -= factor * rows[i][c];
    }
  }
  for (int i = 0; i < kTerms; ++i) {
    (*weights)[i] = rows[i][kTerms] / rows[i][i];
    if (!((*weights)[i] >= kMin[i])) return false;
  }
  return true;
}

double CostFit::Badness(const Terms& weights) const {
  double badness = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) badness += weights[i] * products_[i][j] * weights[j];
    const double moved = weights[i] - prior_[i];
    badness += kPrior * moved * moved - 2 * sums_[i] * weights[i];
  }
  return badness;
}

}  // namespace baton
