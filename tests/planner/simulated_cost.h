// The costs behind the event simulation whose figures the planner's tests compare with.
#pragma once

#include "common/prefill_cost.h"

namespace baton {

// Llama-3-8B on an H100, causal kernel.
inline PrefillCost SimulatedCost() {
  PrefillCost cost;
  cost.n_layers = 32;
  cost.token = 2 * 218e6 / 550e12;
  cost.pair = 4 * 4096 / 450e12;
  cost.extra_tokens = 128;
  cost.min_linear = 436e6 / 3e12;
  cost.kv_bytes = 4096;
  return cost;
}

}  // namespace baton
