#include "bench/relay/relay_simulation.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "planner/partition.h"

namespace baton {
namespace {

struct Arrival {
  double tokens;
  int task;
};

// The ranks of one simulated relay; the decode worker follows them.
class Ranks {
 public:
  Ranks(const SimulatedCluster& cluster, int n)
      : cluster_(cluster), cost_(cluster.cost), n_(n), workers_(n, cluster.link, cluster.noise) {}

  // Adds the tasks of a layer's linear layers: the part that makes K and V, and the rest.
  int Project(int rank, double tokens, const std::vector<int>& after) {
    return Compute(rank, cost_.Linear(tokens) * cluster_.qkv_share, after);
  }
  int Rest(int rank, double tokens, double more, const std::vector<int>& after) {
    return Compute(rank, more + cost_.Linear(tokens) * (1 - cluster_.qkv_share), after);
  }
  int Compute(int rank, double seconds, const std::vector<int>& after) {
    return workers_.Compute(rank, seconds, after);
  }
  // Sends the KV of `tokens` tokens of one layer.
  int SendKv(int from, int to, double tokens, const std::vector<int>& after) {
    return workers_.Send(from, to, tokens * cost_.kv_bytes, after);
  }
  int SendRows(int from, int to, double tokens, const std::vector<int>& after) {
    return workers_.Send(from, to, tokens * cluster_.row_bytes, after);
  }
  // Pushes a slice's KV to the decode worker in pieces.
  void PushKv(int rank, double slice, const CutThrough& options, int after) {
    for (int piece = 0; piece < options.pieces; ++piece) {
      const double tokens = slice / options.pieces;
      if (options.push == DecodePush::kFair) {
        pushes_.push_back(SendKv(rank, n_, tokens, {after}));
      } else if (options.push == DecodePush::kAfterChain) {
        workers_.Push(rank, tokens * cost_.kv_bytes, after);
      }
    }
  }

  // Adds attention of `queries` projected tokens to `prefix` tokens that are present after
  // `cached`, and to arrivals. Returns the last tasks.
  std::vector<int> Attend(int rank, double queries, double prefix, std::vector<int> cached,
                          int projected, const std::vector<Arrival>& arrivals, SegmentOrder order) {
    const double own = cost_.pair * cost_.Pairs(queries, 0);
    const auto pairs = [&](double keys) { return cost_.pair * queries * keys; };
    cached.push_back(projected);
    switch (order) {
      case SegmentOrder::kAscending: {
        int last = Compute(rank, pairs(prefix), cached);
        for (const Arrival& arrival : arrivals) {
          last = Compute(rank, pairs(arrival.tokens), {last, arrival.task});
        }
        return {Compute(rank, own, {last})};
      }
      case SegmentOrder::kArrival: {
        std::vector<int> parts = {Compute(rank, own, {projected})};
        if (prefix > 0) parts.push_back(Compute(rank, pairs(prefix), cached));
        for (const Arrival& arrival : arrivals) {
          parts.push_back(Compute(rank, pairs(arrival.tokens), {projected, arrival.task}));
        }
        return parts;
      }
      case SegmentOrder::kWhole: {
        double seconds = own + pairs(prefix);
        for (const Arrival& arrival : arrivals) {
          seconds += pairs(arrival.tokens);
          cached.push_back(arrival.task);
        }
        return {Compute(rank, seconds, cached)};
      }
    }
    BATON_CHECK(false);
  }

  RelayTimes Times(int last_task) const {
    const SimulatedWorkers::Times run = workers_.Run();
    RelayTimes times;
    times.first_token = run.ends[static_cast<size_t>(last_task)] + cost_.head;
    times.kv_complete = std::max(times.first_token, run.pushed);
    for (const int push : pushes_) {
      times.kv_complete = std::max(times.kv_complete, run.ends[static_cast<size_t>(push)]);
    }
    times.link_bytes = workers_.sent_bytes();
    return times;
  }

 private:
  const SimulatedCluster& cluster_;
  const PrefillCost& cost_;
  int n_;
  SimulatedWorkers workers_;
  std::vector<int> pushes_;
};

// A running relay in rounds and stages. Rank `member` of `stage` is stage * members + member.
class ShapedRelay {
 public:
  ShapedRelay(const SimulatedCluster& cluster, const RelayShape& shape, const CutThrough& options)
      : cluster_(cluster),
        shape_(shape),
        options_(options),
        ranks_(cluster, shape.members * shape.stages),
        last_(static_cast<size_t>(shape.members * shape.stages), -1),
        late_(static_cast<size_t>(cluster.cost.n_layers * shape.members)) {}

  // Sends one part of the prompt through all stages.
  void Round(double tokens, double before, bool is_last) {
    const std::vector<double> nominal(static_cast<size_t>(shape_.members), 1.0);
    slices_ = ClosedForm(cluster_.cost, cluster_.link, tokens, before, nominal);
    before_ = before;
    is_last_ = is_last;
    std::vector<int> rows(slices_.size(), -1);  // activations that arrived
    int layer = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      // Layers are split evenly; the first stages take the rest.
      const int n_layers = cluster_.cost.n_layers / shape_.stages +
                           (stage < cluster_.cost.n_layers % shape_.stages ? 1 : 0);
      for (int i = 0; i < n_layers; ++i, ++layer) {
        Layer(stage, layer, i == 0 ? rows : std::vector<int>(slices_.size(), -1));
      }
      if (stage + 1 == shape_.stages) continue;
      for (int member = 0; member < shape_.members; ++member) {
        rows[At(member)] = ranks_.SendRows(Rank(stage, member), Rank(stage + 1, member),
                                           slices_[At(member)], {last_[At(Rank(stage, member))]});
      }
    }
  }
  RelayTimes Times() const { return ranks_.Times(last_.back()); }

 private:
  static size_t At(int i) { return static_cast<size_t>(i); }
  int Rank(int stage, int member) const { return stage * shape_.members + member; }
  // Returns the KV of this layer that this member needs, but gets only in time for the next round.
  std::vector<Arrival>& Late(int layer, int member) {
    return late_[At(layer * shape_.members + member)];
  }

  void Layer(int stage, int layer, const std::vector<int>& rows) {
    std::vector<int> projected;
    for (int member = 0; member < shape_.members; ++member) {
      int& last = last_[At(Rank(stage, member))];
      last = ranks_.Project(Rank(stage, member), slices_[At(member)], {last, rows[At(member)]});
      projected.push_back(last);
    }
    std::vector<std::vector<Arrival>> arrivals(slices_.size()), late(slices_.size());
    for (int member = 0; member < shape_.members; ++member) {
      Forward(stage, member, projected[At(member)], arrivals, late);
    }
    for (int member = 0; member < shape_.members; ++member) {
      std::vector<int> cached;
      for (const Arrival& arrival : Late(layer, member)) cached.push_back(arrival.task);
      const int rank = Rank(stage, member);
      const double tokens = slices_[At(member)];
      last_[At(rank)] =
          ranks_.Rest(rank, tokens, 0,
                      ranks_.Attend(rank, tokens, before_, cached, projected[At(member)],
                                    arrivals[At(member)], options_.order));
      Late(layer, member) = late[At(member)];
    }
  }

  // Forwards a member's KV piece by piece: now to the members behind it, then around to those
  // before it, except in the last round, where they do not need it. A hop waits for the previous
  // hop.
  void Forward(int stage, int member, int projected, std::vector<std::vector<Arrival>>& arrivals,
               std::vector<std::vector<Arrival>>& late) {
    const double tokens = slices_[At(member)] / options_.pieces;
    const int hops = is_last_ ? shape_.members - 1 - member : shape_.members - 1;
    for (int piece = 0; piece < options_.pieces; ++piece) {
      int landed = projected;
      for (int hop = 1; hop <= hops; ++hop) {
        const int from = (member + hop - 1) % shape_.members, to = (member + hop) % shape_.members;
        landed = ranks_.SendKv(Rank(stage, from), Rank(stage, to), tokens, {landed});
        (to > member ? arrivals : late)[At(to)].push_back({tokens, landed});
      }
    }
    ranks_.PushKv(Rank(stage, member), slices_[At(member)], options_, projected);
  }

  const SimulatedCluster& cluster_;
  const RelayShape shape_;
  const CutThrough options_;
  Ranks ranks_;
  std::vector<double> slices_;  // of the current round
  double before_ = 0;           // tokens before the current round
  bool is_last_ = true;
  std::vector<int> last_;                   // (ranks) last task of each rank
  std::vector<std::vector<Arrival>> late_;  // (layers, members)
};

}  // namespace

double SimulatedCluster::Alone(double tokens) const {
  if (!saves_last_layer) return cost.Alone(tokens, 0);
  return (cost.n_layers - 1) * cost.Layer(tokens, 0) + qkv_share * cost.Linear(tokens) + cost.head;
}

RelayTimes SimulateAccumulating(const SimulatedCluster& cluster, std::span<const double> slices,
                                double prefix) {
  const int n = static_cast<int>(slices.size());
  const PrefillCost& cost = cluster.cost;
  Ranks ranks(cluster, n);
  std::vector<int> done(slices.size(), -1);  // last task of each rank
  for (int layer = 0; layer < cost.n_layers; ++layer) {
    int received = -1;
    double held = 0;
    for (int rank = 0; rank < n; ++rank) {
      int& last = done[static_cast<size_t>(rank)];
      const double slice = slices[static_cast<size_t>(rank)], before = held;
      held += slice;
      int ready = ranks.Project(rank, slice, {last});
      if (rank > 0) ready = ranks.Compute(rank, cluster.append_seconds * held, {ready, received});
      if (rank + 1 < n) received = ranks.SendKv(rank, rank + 1, held, {ready});
      last = cluster.saves_last_layer && layer + 1 == cost.n_layers
                 ? ready
                 : ranks.Rest(rank, slice, cost.pair * cost.Pairs(slice, prefix + before), {ready});
    }
  }
  return ranks.Times(done.back());
}

RelayTimes SimulateCutThrough(const SimulatedCluster& cluster, std::span<const double> slices,
                              double prefix, const CutThrough& options) {
  const int n = static_cast<int>(slices.size());
  Ranks ranks(cluster, n);
  std::vector<int> done(slices.size(), -1);
  for (int layer = 0; layer < cluster.cost.n_layers; ++layer) {
    std::vector<int> projected;
    for (int rank = 0; rank < n; ++rank) {
      const size_t at = static_cast<size_t>(rank);
      projected.push_back(ranks.Project(rank, slices[at], {done[at]}));
    }
    std::vector<std::vector<Arrival>> arrivals(slices.size());
    for (int rank = 0; rank < n; ++rank) {
      const size_t at = static_cast<size_t>(rank);
      const double tokens = slices[at] / options.pieces;
      for (int piece = 0; piece < options.pieces; ++piece) {
        int landed = projected[at];
        for (int to = rank + 1; to < n; ++to) {
          landed = ranks.SendKv(to - 1, to, tokens, {landed});
          arrivals[static_cast<size_t>(to)].push_back({tokens, landed});
        }
      }
      ranks.PushKv(rank, slices[at], options, projected[at]);
    }
    for (int rank = 0; rank < n; ++rank) {
      const size_t at = static_cast<size_t>(rank);
      if (cluster.saves_last_layer && layer + 1 == cluster.cost.n_layers) {
        std::vector<int> keys = {projected[at]};  // the last row reads all keys
        for (const Arrival& arrival : arrivals[at]) keys.push_back(arrival.task);
        done[at] = ranks.Compute(rank, 0, keys);
        continue;
      }
      done[at] = ranks.Rest(
          rank, slices[at], 0,
          ranks.Attend(rank, slices[at], prefix, {}, projected[at], arrivals[at], options.order));
    }
  }
  return ranks.Times(done.back());
}

RelayTimes SimulateShape(const SimulatedCluster& cluster, double tokens, double prefix,
                         const RelayShape& shape, const CutThrough& options) {
  BATON_CHECK(shape.members > 0 && shape.stages > 0 && shape.rounds > 0);
  BATON_CHECK(shape.stages <= cluster.cost.n_layers);
  ShapedRelay relay(cluster, shape, options);
  const std::vector<double> nominal(static_cast<size_t>(shape.rounds), 1.0);
  const std::vector<double> parts = EqualWork(cluster.cost, tokens, prefix, nominal);
  double before = prefix;
  for (size_t round = 0; round < parts.size(); ++round) {
    relay.Round(parts[round], before, round + 1 == parts.size());
    before += parts[round];
  }
  return relay.Times();
}

}  // namespace baton
