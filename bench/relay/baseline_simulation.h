// Simulates other ways to prefill with several workers, on the workers and links of
// relay_simulation.h (docs/PAPER.md, schemes): the rivals that the relay is compared with. Seconds
// to the first token. Pure functions, any thread; all results are simulated.
#pragma once

#include <span>
#include <vector>

#include "bench/relay/relay_simulation.h"

namespace baton {

// Simulates an all-gather of K and V behind a barrier in every layer: contiguous even slices (TSP),
// or balanced ones (zigzag).
double SimulateAllGather(const SimulatedCluster& cluster, double tokens, int ranks, bool zigzag);
// Simulates ring attention over zigzag slices: a step's transfer hides behind a step's attention.
double SimulateRing(const SimulatedCluster& cluster, double tokens, int ranks);
// Returns chunks of equal work, R(P + c) - R(P) = R(c0), in the best number for the stages of a
// pipeline: layers cut into stages, the prompt into chunks.
std::vector<double> PipelineChunks(const SimulatedCluster& cluster, double tokens, int stages);
double SimulatePipeline(const SimulatedCluster& cluster, std::span<const double> chunks,
                        int stages);

}  // namespace baton
