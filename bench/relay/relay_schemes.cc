#include "bench/relay/relay_schemes.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/relay/baseline_simulation.h"
#include "bench/relay/partition_search.h"
#include "bench/relay/rank_stage.h"
#include "bench/relay/relay_measurement.h"
#include "bench/relay/simulated_schemes.h"
#include "planner/partition.h"

namespace baton {
namespace {

constexpr double kGridStride = 64;

// Returns the partition that the paper's search finds for its chain.
std::vector<double> Searched(const SimulatedCluster& cluster, int tokens, int ranks) {
  if (ranks > 4) return SearchedChain(cluster, tokens, ranks);
  const PartitionTime time = [&](std::span<const double> slices) {
    return SimulateAccumulating(cluster, slices, 0).first_token;
  };
  return GridSearch(time, tokens, ranks, kGridStride).slices;
}

// KVR-P: interpolates between the partitions searched for lengths a fifth shorter and a fifth
// longer, as the paper does for 10k between 8k and 12k.
std::vector<double> Interpolated(const SimulatedCluster& cluster, int tokens, int ranks) {
  std::vector<PartitionEntry> table;
  for (const int length : {tokens - tokens / 5, tokens + tokens / 5}) {
    PartitionEntry entry{static_cast<double>(length), Searched(cluster, length, ranks)};
    for (double& ratio : entry.ratios) ratio /= length;
    table.push_back(std::move(entry));
  }
  std::vector<double> slices = InterpolateRatios(table, tokens);
  for (double& slice : slices) slice *= tokens;
  return slices;
}

absl::Status CutZigzag(int ranks, bool rotates, Scheme* scheme) {
  const int piece = scheme->tokens / (2 * ranks);
  if (scheme->tokens % (2 * ranks) != 0 || piece % kSliceKeys != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bench relay: --schemes zigzag and ring need --tokens in multiples of %d",
                        2 * ranks * kSliceKeys));
  }
  scheme->kind = Scheme::Kind::kZigzag;
  scheme->rotates = rotates;
  scheme->slices.assign(static_cast<size_t>(ranks), 2 * piece);
  return absl::OkStatus();
}

absl::Status CutPipeline(const SimulatedCluster& cluster, const RelayRig& rig, Scheme* scheme) {
  const int n_layers = rig.started().n_layers, stages = rig.ranks();
  if (n_layers < stages) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bench relay: --schemes pipeline has no layers for %d ranks, but %d", stages, n_layers));
  }
  scheme->kind = Scheme::Kind::kPipeline;
  scheme->chunks = RoundSlices(PipelineChunks(cluster, scheme->tokens, stages), scheme->tokens,
                               rig.page_tokens());
  for (int i = 1; i <= stages; ++i) scheme->layer_ends.push_back(n_layers * i / stages);
  return absl::OkStatus();
}

// Rank r has pieces r and 2p - 1 - r. It sends its pieces and those it gets to the next rank,
// except the pieces of that rank.
void PlanZigzag(const Scheme& scheme, RelayRig& rig, std::vector<RankRun>& runs) {
  const int n = scheme.ranks(), piece = scheme.tokens / (2 * n);
  const auto pieces_of = [&](int rank) {
    const int other = 2 * n - 1 - rank;
    return std::vector<int>{rank * piece, (rank + 1) * piece, other * piece, (other + 1) * piece};
  };
  for (int rank = 0; rank < n; ++rank) {
    RankRun& run = runs[static_cast<size_t>(rank)];
    run.pieces = pieces_of(rank);
    run.begin = run.pieces.front();
    run.end = run.pieces.back();
    for (int turn = 0; turn < n; ++turn) {
      const std::vector<int> owned = pieces_of((rank - turn + n) % n);
      if (scheme.rotates) {
        run.key_ranges.insert(run.key_ranges.end(), owned.begin(), owned.end());
      }
      if (turn + 1 == n) continue;
      rig.Connect(rank, (rank + 1) % n, owned[0], owned[1], runs);
      rig.Connect(rank, (rank + 1) % n, owned[2], owned[3], runs);
    }
  }
}

void PlanPipeline(const Scheme& scheme, RelayRig& rig, std::vector<RankRun>& runs) {
  for (int i = 0; i < scheme.ranks(); ++i) {
    RankRun& run = runs[static_cast<size_t>(i)];
    run.end = scheme.tokens;
    run.chunks = scheme.chunks;
    run.first_layer = i == 0 ? 0 : scheme.layer_ends[static_cast<size_t>(i - 1)];
    run.end_layer = scheme.layer_ends[static_cast<size_t>(i)];
    if (i > 0) rig.ConnectStages(i - 1, i, scheme.tokens, runs);
  }
}

void PlanGather(const Scheme& scheme, RelayRig& rig, std::vector<RankRun>& runs) {
  int begin = 0;
  for (int i = 0; i < scheme.ranks(); ++i) {
    RankRun& run = runs[static_cast<size_t>(i)];
    run.begin = begin;
    run.end = begin += scheme.slices[static_cast<size_t>(i)];
    for (int other = 0; other < scheme.ranks(); ++other) {
      if (other != i) rig.Connect(i, other, run.begin, run.end, runs);
    }
  }
}

void PlanSink(const Scheme& scheme, RelayRig& rig, std::vector<RankRun>& runs) {
  const int n = scheme.ranks();
  if (scheme.sink == Scheme::Sink::kLastRank) {
    rig.Connect(n - 1, rig.sink(), 0, scheme.tokens, runs);
  } else if (scheme.sink == Scheme::Sink::kEveryRank) {
    for (int i = 0; i < n; ++i) {
      const RankRun& run = runs[static_cast<size_t>(i)];
      rig.Connect(i, rig.sink(), run.begin, run.end, runs);
    }
  }
}

}  // namespace

absl::StatusOr<Scheme> MakeScheme(const std::string& name, const SimulatedCluster& cluster,
                                  const RelayRig& rig, int tokens) {
  const int ranks = rig.ranks();
  const auto rounded = [&](const std::vector<double>& slices) {
    return RoundSlices(slices, tokens, rig.page_tokens());
  };
  Scheme scheme{.tokens = tokens};
  if (name == "steps" || name == "one" || name == "wide") {
    scheme.kind = name == "wide" ? Scheme::Kind::kWide : Scheme::Kind::kOne;
    scheme.by_steps = name != "one";
    scheme.slices = {tokens};
    return scheme;
  }
  if (name == "pipeline") {
    RETURN_IF_ERROR(CutPipeline(cluster, rig, &scheme));
    return scheme;
  }
  if (name == "kvr-e" || name == "kvr-s" || name == "stubbed") {
    scheme.stubbed = name == "stubbed";
    scheme.slices =
        rounded(name == "kvr-e" ? EvenSlices(tokens, ranks) : Searched(cluster, tokens, ranks));
    return scheme;
  }
  if (name == "kvr-p") {
    scheme.slices = rounded(Interpolated(cluster, tokens, ranks));
    return scheme;
  }
  scheme.slices = rounded(ClosedSlices(cluster, tokens, ranks));
  if (name == "closed") return scheme;
  scheme.cuts_through = true;
  if (name == "cut-through") return scheme;
  if (name == "tsp") {
    scheme.kind = Scheme::Kind::kGather;
    scheme.slices = rounded(EvenSlices(tokens, ranks));
    return scheme;
  }
  if (name == "zigzag" || name == "ring") {
    RETURN_IF_ERROR(CutZigzag(ranks, name == "ring", &scheme));
    return scheme;
  }
  scheme.streams = true;
  if (name == "streaming") return scheme;
  if (name == "push" || name == "last") {
    scheme.sink = name == "push" ? Scheme::Sink::kEveryRank : Scheme::Sink::kLastRank;
    return scheme;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("bench relay: --schemes %s; there are %s", name,
                      absl::StrJoin(RelayMeasurementOptions{}.schemes, ", ")));
}

double PredictScheme(const Scheme& scheme, const SimulatedCluster& cluster, int ranks) {
  const std::vector<double> cuts(scheme.cuts().begin(), scheme.cuts().end());
  switch (scheme.kind) {
    case Scheme::Kind::kOne:
      return cluster.Alone(scheme.tokens);
    case Scheme::Kind::kWide:
      return cluster.Alone(scheme.tokens) / ranks;
    case Scheme::Kind::kGather:
      return SimulateAllGather(cluster, scheme.tokens, ranks, false);
    case Scheme::Kind::kZigzag:
      return scheme.rotates ? SimulateRing(cluster, scheme.tokens, ranks)
                            : SimulateAllGather(cluster, scheme.tokens, ranks, true);
    case Scheme::Kind::kPipeline:
      return SimulatePipeline(cluster, cuts, ranks);
    case Scheme::Kind::kChain:
      break;
  }
  if (scheme.stubbed) {
    SimulatedCluster free = cluster;
    free.cost.kv_bytes = 0;
    return SimulateAccumulating(free, cuts, 0).first_token;
  }
  if (!scheme.cuts_through) return SimulateAccumulating(cluster, cuts, 0).first_token;
  CutThrough options;
  options.order = scheme.streams ? SegmentOrder::kAscending : SegmentOrder::kWhole;
  return SimulateCutThrough(cluster, cuts, 0, options).first_token;
}

std::vector<RankRun> PlanScheme(const Scheme& scheme, RelayRig& rig) {
  constexpr uint64_t kSeed = 1;
  using Kind = Scheme::Kind;
  const bool is_chain = scheme.kind == Kind::kChain || scheme.kind == Kind::kOne;
  std::vector<RankRun> runs =
      is_chain ? rig.ChainRuns(scheme.slices, kSeed) : rig.Runs(scheme.tokens, kSeed);
  if (scheme.kind == Kind::kWide) runs[static_cast<size_t>(rig.wide())].end = scheme.tokens;
  if (scheme.kind == Kind::kGather) PlanGather(scheme, rig, runs);
  if (scheme.kind == Kind::kZigzag) PlanZigzag(scheme, rig, runs);
  if (scheme.kind == Kind::kPipeline) PlanPipeline(scheme, rig, runs);
  PlanSink(scheme, rig, runs);
  for (RankRun& run : runs) {
    if (scheme.stubbed) run.in = run.out = {};
    run.by_steps = scheme.by_steps;
    run.cuts_through = scheme.cuts_through;
    run.streams = scheme.streams;
  }
  return runs;
}

int TailOf(const Scheme& scheme, const RelayRig& rig) {
  if (scheme.kind == Scheme::Kind::kWide) return rig.wide();
  return scheme.kind == Scheme::Kind::kZigzag ? 0 : scheme.ranks() - 1;
}

int64_t BytesDue(const Scheme& scheme, const RelayRig& rig) {
  const RankStarted& started = rig.started();
  const int64_t others = scheme.ranks() - 1;
  if (scheme.kind == Scheme::Kind::kPipeline) {
    return others * started.page_bytes *
           PagesOfResiduals(scheme.tokens, started.residual_bytes, started.page_bytes);
  }
  if (scheme.stubbed) return 0;
  int64_t tokens = scheme.sink == Scheme::Sink::kNone ? 0 : scheme.tokens;
  if (scheme.kind == Scheme::Kind::kChain) {
    for (const int64_t carried : LinkTokens(scheme.slices)) tokens += carried;
  }
  if (scheme.kind == Scheme::Kind::kGather || scheme.kind == Scheme::Kind::kZigzag)
    tokens += others * scheme.tokens;
  return tokens * (started.page_bytes / rig.page_tokens());
}

}  // namespace baton
