#include "bench/relay_simulation.h"

#include <algorithm>
#include <limits>

#include "bench/task_graph.h"
#include "common/check.h"
#include "planner/partition.h"

namespace baton {
namespace {

// Workers and links of one simulated chain; the decode worker comes behind the ranks.
class Chain {
 public:
  Chain(const SimulatedCluster& cluster, std::span<const double> slices, double prefix)
      : cluster_(cluster),
        cost_(cluster.cost),
        slices_(slices),
        prefix_(prefix),
        graph_(3 * (static_cast<int>(slices.size()) + 1)) {
    double before = 0;
    for (const double slice : slices) {
      before_.push_back(before);
      before += slice;
    }
  }

  int ranks() const { return static_cast<int>(slices_.size()); }
  double slice(int rank) const { return slices_[static_cast<size_t>(rank)]; }
  double before(int rank) const { return before_[static_cast<size_t>(rank)]; }  // without prefix
  double prefix() const { return prefix_; }
  const PrefillCost& cost() const { return cost_; }
  const SimulatedCluster& cluster() const { return cluster_; }

  int Compute(int rank, double seconds, const std::vector<int>& after) {
    const TaskGraph::Use use[] = {{3 * rank, seconds}};
    return graph_.Add(seconds, use, after);
  }
  // KV of `tokens` of one layer, from one worker to another.
  int Send(int from, int to, double tokens, const std::vector<int>& after) {
    const double seconds = tokens * cost_.kv_bytes / cluster_.link.bytes_per_second;
    const TaskGraph::Use uses[] = {{3 * from + 1, seconds}, {3 * to + 2, seconds}};
    return graph_.Add(seconds, uses, after, cluster_.link.latency);
  }
  // The part of the linear layers that makes K and V, and the rest.
  double Projection(int rank) const { return cost_.Linear(slice(rank)) * cluster_.qkv_share; }
  double Rest(int rank) const { return cost_.Linear(slice(rank)) * (1 - cluster_.qkv_share); }
  double Pairs(double queries, double keys) const { return cost_.pair * queries * keys; }
  double Own(int rank) const { return cost_.pair * cost_.Pairs(slice(rank), 0); }

  RelayTimes Times(int last_task, const std::vector<int>& pushes) const {
    const std::vector<double> ends = graph_.Run();
    RelayTimes times;
    times.first_token = ends[static_cast<size_t>(last_task)] + cost_.head;
    times.kv_complete = times.first_token;
    for (const int push : pushes) {
      times.kv_complete = std::max(times.kv_complete, ends[static_cast<size_t>(push)]);
    }
    return times;
  }

 private:
  const SimulatedCluster& cluster_;
  const PrefillCost& cost_;
  std::span<const double> slices_;
  double prefix_;
  std::vector<double> before_;
  TaskGraph graph_;
};

struct Arrival {
  double tokens;
  int task;
};

// Attention of one rank and layer; the tasks that end it.
std::vector<int> Attend(Chain& chain, int rank, int projected, const std::vector<Arrival>& arrivals,
                        SegmentOrder order) {
  const double queries = chain.slice(rank);
  const double cached = chain.Pairs(queries, chain.prefix());
  switch (order) {
    case SegmentOrder::kAscending: {
      int last = chain.Compute(rank, cached, {projected});
      for (const Arrival& arrival : arrivals) {
        last = chain.Compute(rank, chain.Pairs(queries, arrival.tokens), {last, arrival.task});
      }
      return {chain.Compute(rank, chain.Own(rank), {last})};
    }
    case SegmentOrder::kArrival: {
      std::vector<int> parts = {chain.Compute(rank, chain.Own(rank) + cached, {projected})};
      for (const Arrival& arrival : arrivals) {
        parts.push_back(
            chain.Compute(rank, chain.Pairs(queries, arrival.tokens), {projected, arrival.task}));
      }
      return parts;
    }
    case SegmentOrder::kWhole: {
      std::vector<int> after = {projected};
      for (const Arrival& arrival : arrivals) after.push_back(arrival.task);
      const double all = cached + chain.Own(rank) + chain.Pairs(queries, chain.before(rank));
      return {chain.Compute(rank, all, after)};
    }
  }
  CHECK(false);
}

// Sends the pieces of rank `from` down the chain; each hop waits for the one before it.
void Forward(Chain& chain, int from, int projected, int pieces,
             std::vector<std::vector<Arrival>>& arrivals) {
  const double tokens = chain.slice(from) / pieces;
  for (int piece = 0; piece < pieces; ++piece) {
    int landed = projected;
    for (int to = from + 1; to < chain.ranks(); ++to) {
      landed = chain.Send(to - 1, to, tokens, {landed});
      arrivals[static_cast<size_t>(to)].push_back({tokens, landed});
    }
  }
}

}  // namespace

RelayTimes SimulateAccumulating(const SimulatedCluster& cluster, std::span<const double> slices,
                                double prefix) {
  Chain chain(cluster, slices, prefix);
  std::vector<int> done(slices.size(), -1);  // a rank's last task
  for (int layer = 0; layer < cluster.cost.n_layers; ++layer) {
    int received = -1;
    for (int rank = 0; rank < chain.ranks(); ++rank) {
      int& last = done[static_cast<size_t>(rank)];
      int ready = chain.Compute(rank, chain.Projection(rank),
                                last < 0 ? std::vector<int>{} : std::vector<int>{last});
      const double held = chain.before(rank) + chain.slice(rank);
      if (rank > 0) ready = chain.Compute(rank, cluster.append_seconds * held, {ready, received});
      if (rank + 1 < chain.ranks()) received = chain.Send(rank, rank + 1, held, {ready});
      const double attention =
          cluster.cost.pair * cluster.cost.Pairs(chain.slice(rank), prefix + chain.before(rank));
      last = chain.Compute(rank, attention + chain.Rest(rank), {ready});
    }
  }
  return chain.Times(done.back(), {});
}

RelayTimes SimulateCutThrough(const SimulatedCluster& cluster, std::span<const double> slices,
                              double prefix, const CutThrough& options) {
  Chain chain(cluster, slices, prefix);
  std::vector<int> done(slices.size(), -1);
  std::vector<int> pushes;
  for (int layer = 0; layer < cluster.cost.n_layers; ++layer) {
    std::vector<int> projected;
    for (int rank = 0; rank < chain.ranks(); ++rank) {
      const int last = done[static_cast<size_t>(rank)];
      projected.push_back(chain.Compute(rank, chain.Projection(rank),
                                        last < 0 ? std::vector<int>{} : std::vector<int>{last}));
    }
    std::vector<std::vector<Arrival>> arrivals(slices.size());
    for (int rank = 0; rank < chain.ranks(); ++rank) {
      const int ready = projected[static_cast<size_t>(rank)];
      Forward(chain, rank, ready, options.pieces, arrivals);
      for (int piece = 0; options.decode_push && piece < options.pieces; ++piece) {
        pushes.push_back(
            chain.Send(rank, chain.ranks(), chain.slice(rank) / options.pieces, {ready}));
      }
    }
    for (int rank = 0; rank < chain.ranks(); ++rank) {
      const size_t at = static_cast<size_t>(rank);
      const std::vector<int> attended =
          Attend(chain, rank, projected[at], arrivals[at], options.order);
      done[at] = chain.Compute(rank, chain.Rest(rank), attended);
    }
  }
  return chain.Times(done.back(), pushes);
}

double SimulateAllGather(const SimulatedCluster& cluster, double tokens, int ranks, bool zigzag) {
  const PrefillCost& cost = cluster.cost;
  const double slice = tokens / ranks;
  const double wire = slice * cost.kv_bytes / cluster.link.bytes_per_second;
  const double gather = (ranks - 1) * (cluster.link.latency + wire);
  double pairs = cost.Pairs(slice, tokens - slice);  // of the last rank, which has the most
  if (cost.kernel == PairKernel::kDenseMask) pairs = slice * tokens;
  if (cost.kernel == PairKernel::kCausal && zigzag) pairs = tokens * tokens / 2 / ranks;
  return cost.n_layers * (cost.Linear(slice) + gather + cost.pair * pairs) + cost.head;
}

double SimulateRing(const SimulatedCluster& cluster, double tokens, int ranks) {
  const PrefillCost& cost = cluster.cost;
  const double slice = tokens / ranks, half = slice / 2;
  const double own = cost.kernel == PairKernel::kDenseMask ? 3 : 2;  // half-slice squares
  const double transfer =
      cluster.link.latency + slice * cost.kv_bytes / cluster.link.bytes_per_second;
  double layer = cost.Linear(slice);
  for (int step = 0; step < ranks; ++step) {
    const double attention = cost.pair * (step == 0 ? own : 2) * half * half;
    layer += std::max(attention, step + 1 < ranks ? transfer : 0);
  }
  return cost.n_layers * layer + cost.head;
}

double SimulatePipeline(const SimulatedCluster& cluster, double tokens, int stages) {
  constexpr int kLeastChunk = 64;
  const PrefillCost& cost = cluster.cost;
  double best = std::numeric_limits<double>::infinity();
  for (const int chunks : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256}) {
    if (tokens / chunks < kLeastChunk) break;
    const std::vector<double> nominal(static_cast<size_t>(chunks), 1.0);
    std::vector<double> stage_free(static_cast<size_t>(stages), 0.0);
    std::vector<double> port_free(static_cast<size_t>(stages), 0.0);
    double before = 0;
    for (const double chunk : EqualWork(cost, tokens, 0, nominal)) {
      const double work = cost.n_layers * cost.Layer(chunk, before) / stages;
      before += chunk;
      double time = 0;
      for (size_t stage = 0; stage < stage_free.size(); ++stage) {
        time = stage_free[stage] = std::max(time, stage_free[stage]) + work;
        if (stage + 1 == stage_free.size()) continue;
        const double sent = std::max(time, port_free[stage]) +
                            chunk * cluster.row_bytes / cluster.link.bytes_per_second;
        port_free[stage] = sent;
        time = sent + cluster.link.latency;
      }
    }
    best = std::min(best, stage_free.back() + cost.head);
  }
  return best;
}

}  // namespace baton
