#include "planner/prefill_cost.h"

#include <algorithm>

namespace baton {

double PrefillCost::Linear(double tokens) const {
  return std::max(token * (tokens + extra_tokens), least_linear);
}

double PrefillCost::Pairs(double tokens, double before) const {
  const double own = tokens * tokens;
  return tokens * before + (kernel == PairKernel::kCausal ? own / 2 : own);
}

double PrefillCost::Layer(double tokens, double before) const {
  return Linear(tokens) + pair * Pairs(tokens, before);
}

double PrefillCost::Alone(double tokens, double prefix) const {
  return n_layers * Layer(tokens, prefix) + head;
}

}  // namespace baton
