// Prefill that is still to be done, and what it costs a worker by the fit that the worker reports.
// Plain data and pure functions, any thread.
#pragma once

#include <cstdint>

#include "common/prefill_cost.h"
#include "proto/messages.h"

namespace baton {

struct PrefillWork {
  int64_t tokens = 0;
  double pairs = 0;  // (query, key) pairs of attention

  // `tokens` of a prompt behind `before` tokens that are cached or computed elsewhere.
  static PrefillWork Of(int32_t tokens, int32_t before);
  // Returns the work of a slice's last `left` tokens, at most of all.
  PrefillWork Last(int64_t left) const;
  PrefillWork& operator+=(const PrefillWork& other);
};

// Seconds of the linear layers and the attention.
double WorkSeconds(const PrefillCost& cost, const PrefillWork& work);

}  // namespace baton
