#include "bench/relay/simulated_schemes.h"

#include <algorithm>
#include <limits>

#include "bench/relay/baseline_simulation.h"
#include "bench/relay/partition_tuning.h"
#include "planner/partition.h"

namespace baton {
namespace {

constexpr int kMaxGridRanks = 4;  // 5^(ranks - 1) trials per level
constexpr double kGridStride = 64;
constexpr double kMinRoundSlice = 64;  // tokens
constexpr int kMaxRoundTasks = 40000;  // tasks of one simulation
constexpr int kRounds[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

std::vector<double> Nominal(int ranks) {
  return std::vector<double>(static_cast<size_t>(ranks), 1.0);
}

std::vector<double> Scaled(std::vector<double> ratios, double tokens) {
  for (double& ratio : ratios) ratio *= tokens;
  return ratios;
}

// KVR-P: interpolates the entries of the other lengths.
std::vector<double> TableSlices(const std::vector<PartitionEntry>& table, double tokens) {
  std::vector<PartitionEntry> others;
  for (const PartitionEntry& entry : table) {
    if (entry.tokens != tokens) others.push_back(entry);
  }
  return Scaled(InterpolateRatios(others.empty() ? table : others, tokens), tokens);
}

// Returns the best time of all shapes of `ranks` workers; adds rounds only while they help.
double BestShape(const SimulatedCluster& cluster, double tokens, int ranks) {
  double best = std::numeric_limits<double>::infinity();
  for (int stages = 1; stages <= ranks; ++stages) {
    if (ranks % stages != 0) continue;
    const int members = ranks / stages;
    double best_here = std::numeric_limits<double>::infinity();
    int worse = 0;
    for (const int rounds : kRounds) {
      const int tasks = rounds * cluster.cost.n_layers * members * (3 + members);
      if (tokens / rounds / members < kMinRoundSlice || tasks > kMaxRoundTasks) break;
      CutThrough options;
      options.pieces = 1;
      const double seconds =
          SimulateShape(cluster, tokens, 0, {members, stages, rounds}, options).first_token;
      worse = seconds < best_here ? 0 : worse + 1;
      best_here = std::min(best_here, seconds);
      if (worse == 2) break;
    }
    best = std::min(best, best_here);
  }
  return best;
}

class Schemes {
 public:
  Schemes(const NamedCluster& named, int ranks) : named_(named), ranks_(ranks) {}

  void AddPaper(double tokens, const std::vector<PartitionEntry>& table) {
    const SimulatedCluster& cluster = named_.cluster;
    Add("one", tokens, cluster.cost.Alone(tokens, 0));
    Add("tsp", tokens, SimulateAllGather(cluster, tokens, ranks_, false));
    AddChain("kvr-e", tokens, EvenSlices(tokens, ranks_));
    if (ranks_ <= kMaxGridRanks) {
      const PartitionTime time = [&](std::span<const double> slices) {
        return SimulateAccumulating(cluster, slices, 0).first_token;
      };
      AddChain("kvr-grid", tokens, GridSearch(time, tokens, ranks_, kGridStride).slices);
    }
    for (const PartitionEntry& entry : table) {
      if (entry.tokens == tokens) AddChain("kvr-s", tokens, Scaled(entry.ratios, tokens));
    }
    AddChain("kvr-p", tokens, TableSlices(table, tokens));
  }

  void AddRelay(double tokens) {
    const SimulatedCluster& cluster = named_.cluster;
    const std::vector<double> slices = ClosedSlices(cluster, tokens, ranks_);
    AddChain("closed", tokens, slices);
    CutThrough options;
    options.order = SegmentOrder::kWhole;
    Add("cut-through", tokens, SimulateCutThrough(cluster, slices, 0, options).first_token, slices);
    Add("streaming", tokens, RelayTime(cluster, slices), slices);
    const std::vector<int> rounded = RoundSlices(slices, static_cast<int>(tokens), 64);
    const std::vector<double> pages(rounded.begin(), rounded.end());
    Add("pages", tokens, RelayTime(cluster, pages), pages);
    const std::vector<double> searched = SearchedRelay(cluster, tokens, ranks_);
    Add("searched", tokens, RelayTime(cluster, searched), searched);
    options = {};
    options.push = DecodePush::kAfterChain;
    const RelayTimes pushed = SimulateCutThrough(cluster, slices, 0, options);
    Add("push", tokens, pushed.first_token, slices);
    results_.back().kv_complete = pushed.kv_complete;
    Add("shapes", tokens, BestShape(cluster, tokens, ranks_));
  }

  void AddOthers(double tokens) {
    const SimulatedCluster& cluster = named_.cluster;
    Add("zigzag", tokens, SimulateAllGather(cluster, tokens, ranks_, true));
    Add("ring", tokens, SimulateRing(cluster, tokens, ranks_));
    Add("pipeline", tokens,
        SimulatePipeline(cluster, PipelineChunks(cluster, tokens, ranks_), ranks_));
  }

  std::vector<RelayResult> Take() { return std::move(results_); }

 private:
  void Add(const char* scheme, double tokens, double seconds, std::vector<double> slices = {}) {
    results_.push_back({kSimulation, named_.name, scheme, named_.cluster.link.bytes_per_second,
                        ranks_, tokens, seconds, 0, std::move(slices)});
  }
  void AddChain(const char* scheme, double tokens, std::vector<double> slices) {
    const double seconds = ChainTime(named_.cluster, slices);
    Add(scheme, tokens, seconds, std::move(slices));
  }

  const NamedCluster& named_;
  int ranks_;
  std::vector<RelayResult> results_;
};

}  // namespace

std::vector<double> EvenSlices(double tokens, int ranks) {
  return std::vector<double>(static_cast<size_t>(ranks), tokens / ranks);
}

std::vector<double> ClosedSlices(const SimulatedCluster& cluster, double tokens, int ranks) {
  return ClosedForm(cluster.cost, cluster.link, tokens, 0, Nominal(ranks));
}

std::vector<double> SearchedChain(const SimulatedCluster& cluster, double tokens, int ranks) {
  const PartitionTime time = [&](std::span<const double> slices) {
    return SimulateAccumulating(cluster, slices, 0).first_token;
  };
  return TunedSearch(time, cluster.cost, cluster.link, tokens, 0, ranks).slices;
}

std::vector<double> SearchedRelay(const SimulatedCluster& cluster, double tokens, int ranks) {
  const PartitionTime time = [&](std::span<const double> slices) {
    return SimulateCutThrough(cluster, slices, 0, {}).first_token;
  };
  return TunedSearch(time, cluster.cost, cluster.link, tokens, 0, ranks).slices;
}

double ChainTime(const SimulatedCluster& cluster, const std::vector<double>& slices) {
  return SimulateAccumulating(cluster, slices, 0).first_token;
}

double RelayTime(const SimulatedCluster& cluster, const std::vector<double>& slices) {
  return SimulateCutThrough(cluster, slices, 0, {}).first_token;
}

std::vector<RelayResult> SimulateSchemes(const NamedCluster& cluster,
                                         const std::vector<double>& tokens, int ranks) {
  std::vector<PartitionEntry> table;
  for (const double n : tokens) {
    std::vector<double> slices = SearchedChain(cluster.cluster, n, ranks);
    for (double& slice : slices) slice /= n;
    table.push_back({n, std::move(slices)});
  }
  Schemes schemes(cluster, ranks);
  for (const double n : tokens) {
    schemes.AddPaper(n, table);
    schemes.AddRelay(n);
    schemes.AddOthers(n);
  }
  return schemes.Take();
}

}  // namespace baton
