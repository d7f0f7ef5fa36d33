#include "planner/cost_fit.h"

#include "common/check.h"

namespace baton {
namespace {

// Units of terms that may fit as zero: the floor in tokens, a pair as a share of a token.
constexpr double kFloorTokens = 50, kPairShare = 1e-5;
constexpr double kMinToken = 1e-3;  // of the first cost
// Short prompts hardly show what pairs cost, so that is left near the proportions for longer.
constexpr double kPairAnchor = 4;

}  // namespace

CostFit::CostFit(const PrefillCost& begin, double anchor)
    : cost_(begin),
      fit_({begin.extra_tokens * begin.token, begin.token, begin.pair},
           {kFloorTokens * begin.token, begin.token,
            begin.pair > 0 ? begin.pair : kPairShare * begin.token},
           {.min = {0, kMinToken * begin.token, 0},
            .anchor = {anchor, anchor, begin.pair > 0 ? kPairAnchor * anchor : 0}}) {
  BATON_CHECK(begin.token > 0 && begin.pair >= 0);
}

void CostFit::Add(double tokens, double pairs, double seconds) {
  if (!(tokens > 0)) return;
  fit_.Add({1, tokens, pairs}, seconds);
  const auto& [floor, token, pair] = fit_.coefficients();
  cost_.token = token;
  cost_.pair = pair;
  cost_.extra_tokens = floor / token;
}

}  // namespace baton
