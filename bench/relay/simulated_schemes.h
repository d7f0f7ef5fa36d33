// Every scheme of prefill on the same simulated workers: the paper's (KVR-E, KVR-S by grid and by
// the widest search, KVR-P), the relay step by step (closed form, cut-through, streaming, decode
// push, rounds and stages), and other schemes (TSP, zigzag, ring, pipeline). Pure, any thread.
#pragma once

#include <vector>

#include "bench/relay/relay_clusters.h"
#include "bench/relay/relay_result.h"

namespace baton {

inline constexpr char kSimulation[] = "simulation";

// Return slices for nominal speeds and no cached tokens.
std::vector<double> EvenSlices(double tokens, int ranks);
std::vector<double> ClosedSlices(const SimulatedCluster& cluster, double tokens, int ranks);
// Return the best slices found for the paper's chain (KVR-S), and for the relay.
std::vector<double> SearchedChain(const SimulatedCluster& cluster, double tokens, int ranks);
std::vector<double> SearchedRelay(const SimulatedCluster& cluster, double tokens, int ranks);
// Return the seconds to the first token.
double ChainTime(const SimulatedCluster& cluster, const std::vector<double>& slices);
double RelayTime(const SimulatedCluster& cluster, const std::vector<double>& slices);

// Simulates all schemes at each of `tokens` (ascending), on `ranks` workers; cluster.link is set.
std::vector<RelayResult> SimulateSchemes(const NamedCluster& cluster,
                                         const std::vector<double>& tokens, int ranks);

}  // namespace baton
