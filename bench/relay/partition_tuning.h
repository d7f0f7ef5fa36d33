// The best partition that trying finds, of a simulated or measured relay: what the closed form and
// the tables are compared with. Pure function around the objective, any thread.
#pragma once

#include "bench/relay/partition_search.h"
#include "common/prefill_cost.h"
#include "planner/chain_link.h"

namespace baton {

// Starts: even slices, the closed form, and equal work with attention weighted otherwise and
// early slices shortened; from the best of them one boundary at a time.
FoundPartition TunedSearch(const PartitionTime& time, const PrefillCost& cost,
                           const ChainLink& link, double tokens, double prefix, int ranks);

}  // namespace baton
