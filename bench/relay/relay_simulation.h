// Simulated prefill by several workers in a chain: the paper's, the relay, and the relay in rounds
// and stages, on modelled workers and links (docs/PAPER.md, schemes). All figures are simulated,
// not measured: one full-duplex port per worker, first come first served, and no contention between
// transfers and compute. Pure functions, any thread.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "bench/relay/simulated_workers.h"
#include "common/prefill_cost.h"
#include "planner/chain_link.h"

namespace baton {

struct SimulatedCluster {
  PrefillCost cost;        // of a nominal worker
  ChainLink link;          // of every worker, per direction
  double qkv_share = 0.3;  // share of the linear layers computed before a layer's KV is final
  double append_seconds =
      0;                 // per token and layer: copying the received cache together (the paper)
  double row_bytes = 0;  // one activation row, sent between the stages of a pipeline
  LinkNoise noise;       // other traffic; default: none
  // Computes of the last layer only keys and values, and the rest for the last row alone (neither
  // the paper nor its rivals do so).
  bool saves_last_layer = false;

  // Seconds of a whole prompt on one worker.
  double Alone(double tokens) const;
};

// Seconds from the common start of the workers.
struct RelayTimes {
  double first_token = 0;
  double kv_complete = 0;  // the decode worker has all KV; first_token if nothing is pushed
  // Bytes of each link (from, to); the decode worker's number follows the ranks'.
  std::map<std::pair<int, int>, double> link_bytes = {};
};

// The order in which attention reads the slices of earlier ranks.
enum class SegmentOrder {
  kArrival,    // as slices arrive, own slice first: faster, but the result would depend on timing
  kAscending,  // in order of position as they come, own slice last (numerics v1)
  kWhole       // after all have arrived
};

// The way in which ranks push their slices to the decode worker.
enum class DecodePush {
  kNone,
  kFair,       // as pieces are ready, in turns with those of the chain
  kAfterChain  // in the time that the chain leaves free on the ports
};

struct CutThrough {
  SegmentOrder order = SegmentOrder::kAscending;
  int pieces = 4;  // per slice and layer, forwarded one by one
  DecodePush push = DecodePush::kNone;
};

// A relay's ranks as `stages` groups of `members`, a share of the layers each; the prompt goes
// through them in `rounds` parts of equal work. (p, 1, 1) is one chain, (1, p, m) a pipeline.
struct RelayShape {
  int members = 1, stages = 1, rounds = 1;
};

// KV-Runahead as published: a rank waits for the accumulated cache of the one before it, appends
// its own KV, sends everything on, then attends.
RelayTimes SimulateAccumulating(const SimulatedCluster& cluster, std::span<const double> slices,
                                double prefix);
// The relay: pieces cross each link once and are forwarded as they land; every rank may push its
// own slice to the decode worker.
RelayTimes SimulateCutThrough(const SimulatedCluster& cluster, std::span<const double> slices,
                              double prefix, const CutThrough& options);
// The relay in rounds and stages, with slices by the closed form. KV that an earlier member needs
// in the next round travels on around the ring.
RelayTimes SimulateShape(const SimulatedCluster& cluster, double tokens, double prefix,
                         const RelayShape& shape, const CutThrough& options);

}  // namespace baton
