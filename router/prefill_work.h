// Prefill that is still to be done, and what it costs a worker by the fit the worker reports. Pure
// functions.
#pragma once

#include <cstdint>

#include "planner/prefill_cost.h"
#include "proto/messages.h"

namespace baton {

struct PrefillWork {
  int64_t tokens = 0;
  double pairs = 0;  // (query, key) pairs of attention

  // `tokens` of a prompt behind `before` that are there or computed elsewhere.
  static PrefillWork Of(int32_t tokens, int32_t before);
  PrefillWork& operator+=(const PrefillWork& other);
};

// The worker has measured itself: fit.n_seen > 0.
PrefillCost CostOf(const WorkerAnnounce& worker, const PrefillFit& fit);
// Costs of a worker like this one that computes `tokens_per_s`, however long the prompt is.
PrefillCost CostOf(const WorkerAnnounce& worker, double tokens_per_s);

double WorkMs(const PrefillCost& cost, const PrefillWork& work);

}  // namespace baton
