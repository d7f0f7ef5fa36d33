#include "router/prefill_work.h"

#include "common/check.h"

namespace baton {

PrefillWork PrefillWork::Of(int32_t tokens, int32_t before) {
  return {.tokens = tokens, .pairs = CausalPairs(tokens, before)};
}

PrefillWork& PrefillWork::operator+=(const PrefillWork& other) {
  tokens += other.tokens;
  pairs += other.pairs;
  return *this;
}

PrefillCost CostOf(const WorkerAnnounce& worker, const PrefillFit& fit) {
  BATON_CHECK(fit.n_seen > 0 && fit.token > 0 && worker.n_layers > 0);
  PrefillCost cost;
  cost.n_layers = worker.n_layers;
  cost.token = fit.token / worker.n_layers;
  cost.pair = fit.pair / worker.n_layers;
  cost.extra_tokens = fit.floor / fit.token;
  cost.kv_bytes = worker.kv_token_bytes;
  return cost;
}

double WorkSeconds(const PrefillCost& cost, const PrefillWork& work) {
  return cost.n_layers * (cost.token * static_cast<double>(work.tokens) + cost.pair * work.pairs);
}

}  // namespace baton
