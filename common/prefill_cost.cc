#include "common/prefill_cost.h"

#include <algorithm>

namespace baton {

double CausalPairs(double tokens, double before) { return tokens * (before + tokens / 2); }

double PrefillCost::Linear(double tokens) const {
  return std::max(token * (tokens + extra_tokens), min_linear);
}

double PrefillCost::Pairs(double tokens, double before) const {
  const double own = kernel == PairKernel::kDenseMask ? tokens * tokens / 2 : 0;
  return CausalPairs(tokens, before) + own;
}

double PrefillCost::Layer(double tokens, double before) const {
  return Linear(tokens) + pair * Pairs(tokens, before);
}

double PrefillCost::Work(double tokens, double pairs) const {
  return n_layers * (token * tokens + this->pair * pairs);
}

double PrefillCost::Alone(double tokens, double prefix) const {
  return n_layers * Layer(tokens, prefix) + head;
}

}  // namespace baton
