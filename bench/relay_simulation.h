// Simulated prefill by several workers: the paper's chain, the relay, and what others do, on
// modelled workers and links (relay reference 4, 5). Whatever it says is a simulation, never a
// measurement: one full-duplex port per worker, first come first served, and no contention between
// transfers and compute. Pure functions, any thread.
#pragma once

#include <span>
#include <vector>

#include "planner/prefill_cost.h"

namespace baton {

struct SimulatedCluster {
  PrefillCost cost;        // of a nominal worker
  ChainLink link;          // of every worker, per direction
  double qkv_share = 0.3;  // of the linear layers, before a layer's KV is there
  double append_seconds =
      0;                 // per token and layer: copying the received cache together (the paper)
  double row_bytes = 0;  // of one activation row, between the stages of a pipeline
};

// Seconds from the moment all workers begin.
struct RelayTimes {
  double first_token = 0;
  double kv_complete = 0;  // at the decode worker; first_token where nothing is pushed
};

// When attention may read the slices of earlier ranks.
enum class SegmentOrder {
  kArrival,    // as they come, own slice first: faster, but the result would depend on timing
  kAscending,  // in order of position as they come, own slice last (numerics v1)
  kWhole       // when all of them are there
};

struct CutThrough {
  SegmentOrder order = SegmentOrder::kAscending;
  int pieces = 4;  // per slice and layer, forwarded one by one
  bool decode_push = false;
};

// KV-Runahead as published: a rank waits for the accumulated cache of the one before it, appends
// its own KV, sends everything on, then attends.
RelayTimes SimulateAccumulating(const SimulatedCluster& cluster, std::span<const double> slices,
                                double prefix);
// The relay: pieces cross each link once and are forwarded as they land; every rank may push its
// own slice to the decode worker.
RelayTimes SimulateCutThrough(const SimulatedCluster& cluster, std::span<const double> slices,
                              double prefix, const CutThrough& options);
// All-gather of K and V behind a barrier in every layer: contiguous even slices (TSP), or balanced
// ones (zigzag).
double SimulateAllGather(const SimulatedCluster& cluster, double tokens, int ranks, bool zigzag);
// Ring attention over zigzag slices: a step's transfer hides behind a step's attention.
double SimulateRing(const SimulatedCluster& cluster, double tokens, int ranks);
// Layers cut into stages, the prompt into chunks of equal work; the best number of chunks.
double SimulatePipeline(const SimulatedCluster& cluster, double tokens, int stages);

}  // namespace baton
