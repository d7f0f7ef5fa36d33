// Predicts the time of a relay of one chain, in one round or in several (docs/PLANNER.md, chain):
// per layer the longest of the ranks' work and of the links' bytes, plus the waits of the last
// slice at both ends. Pure function, any thread. PlanRelay compares the result with Alone().
#pragma once

#include <span>

#include "common/prefill_cost.h"
#include "planner/chain_link.h"

namespace baton {

// Seconds until the first token of a prompt cut into `slices` (rounds x ranks, in the order of the
// prompt) behind `prefix` cached tokens, from the moment all ranks begin. speeds: (ranks), 1 = the
// speed that `cost` describes. One slice: the time of one worker alone. handed_on: tokens of the
// prefix that only the first rank has cached, so that links carry them too.
double ChainSeconds(const PrefillCost& cost, const ChainLink& link, std::span<const double> slices,
                    double prefix, std::span<const double> speeds, double handed_on = 0);

}  // namespace baton
