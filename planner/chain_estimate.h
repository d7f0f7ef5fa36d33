// How long a relay of one chain takes, in one round or in several (docs/PLANNER.md, chain): the
// longest of its ranks' work and of its links' bytes in every layer, and what the last slice waits
// for at the ends. Pure function, any thread; the choice of a degree compares these and Alone().
#pragma once

#include <span>

#include "planner/prefill_cost.h"

namespace baton {

// Seconds until the first token of a prompt cut into `slices` (rounds x ranks, in the order of the
// prompt) behind `prefix` cached tokens, from the moment all ranks begin. speeds: (ranks), 1 = what
// `cost` says. One slice: as long as one worker alone. handed_on: tokens of the prefix that only
// the first rank has cached, so that links carry them too.
double ChainSeconds(const PrefillCost& cost, const ChainLink& link, std::span<const double> slices,
                    double prefix, std::span<const double> speeds, double handed_on = 0);

}  // namespace baton
