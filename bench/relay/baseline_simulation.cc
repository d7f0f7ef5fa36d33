#include "bench/relay/baseline_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/partition.h"

namespace baton {
namespace {

// Returns the duration of a step in which every rank sends to its neighbour: the slowest rank's.
double SlowestPort(const SimulatedCluster& cluster, int ranks, double time, double seconds) {
  double end = time + seconds;
  for (int rank = 0; rank < ranks; ++rank) {
    end = std::max(end, cluster.noise.Through(rank, time, seconds));
  }
  return end - time;
}

}  // namespace

double SimulateAllGather(const SimulatedCluster& cluster, double tokens, int ranks, bool zigzag) {
  const PrefillCost& cost = cluster.cost;
  const double slice = tokens / ranks;
  const double wire = slice * cost.kv_bytes / cluster.link.bytes_per_second;
  double pairs = cost.Pairs(slice, tokens - slice);  // the last rank's, the max
  if (cost.kernel == PairKernel::kDenseMask) pairs = slice * tokens;
  if (cost.kernel == PairKernel::kCausal && zigzag) pairs = tokens * tokens / 2 / ranks;
  const double linear = cost.Linear(slice);
  double time = 0;
  for (int layer = 0; layer < cost.n_layers; ++layer) {
    time += linear * cluster.qkv_share;
    for (int step = 1; step < ranks; ++step) {
      time += cluster.link.latency + SlowestPort(cluster, ranks, time, wire);
    }
    time += cost.pair * pairs + linear * (1 - cluster.qkv_share);
  }
  return time + cost.head;
}

double SimulateRing(const SimulatedCluster& cluster, double tokens, int ranks) {
  const PrefillCost& cost = cluster.cost;
  const double slice = tokens / ranks, half = slice / 2;
  const double own = cost.kernel == PairKernel::kDenseMask ? 3 : 2;  // half-slice squares
  const double wire = slice * cost.kv_bytes / cluster.link.bytes_per_second;
  const double linear = cost.Linear(slice);
  double time = 0;
  for (int layer = 0; layer < cost.n_layers; ++layer) {
    time += linear * cluster.qkv_share;
    for (int step = 0; step < ranks; ++step) {
      const double attention = cost.pair * (step == 0 ? own : 2) * half * half;
      const double transfer =
          step + 1 < ranks ? cluster.link.latency + SlowestPort(cluster, ranks, time, wire) : 0;
      time += std::max(attention, transfer);
    }
    time += linear * (1 - cluster.qkv_share);
  }
  return time + cost.head;
}

std::vector<double> PipelineChunks(const SimulatedCluster& cluster, double tokens, int stages) {
  constexpr int kMinChunk = 64;
  std::vector<double> best;
  double min_seconds = std::numeric_limits<double>::infinity();
  for (const int chunks : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256}) {
    if (tokens / chunks < kMinChunk) break;
    const std::vector<double> nominal(static_cast<size_t>(chunks), 1.0);
    std::vector<double> cut = EqualWork(cluster.cost, tokens, 0, nominal);
    const double time = SimulatePipeline(cluster, cut, stages);
    if (time >= min_seconds) continue;
    min_seconds = time;
    best = std::move(cut);
  }
  return best;
}

double SimulatePipeline(const SimulatedCluster& cluster, std::span<const double> chunks,
                        int stages) {
  const PrefillCost& cost = cluster.cost;
  const auto n = static_cast<size_t>(stages);
  std::vector<double> stage_free(n, 0.0), port_free(n, 0.0);
  double before = 0;
  for (const double chunk : chunks) {
    const double layer = cost.Layer(chunk, before);
    const double saved =
        cluster.saves_last_layer ? layer - cluster.qkv_share * cost.Linear(chunk) : 0;
    before += chunk;
    double time = 0;
    for (size_t stage = 0; stage < n; ++stage) {
      const bool is_last = stage + 1 == n;
      time = std::max(time, stage_free[stage]) + cost.n_layers * layer / stages;
      if (is_last) time -= saved;
      stage_free[stage] = time;
      if (is_last) continue;
      const double sent = std::max(time, port_free[stage]) +
                          chunk * cluster.row_bytes / cluster.link.bytes_per_second;
      port_free[stage] = sent;
      time = sent + cluster.link.latency;
    }
  }
  return stage_free.back() + cost.head;
}

}  // namespace baton
