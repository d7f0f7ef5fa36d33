#include "bench/relay/relay_tuning.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/relay/partition_search.h"
#include "bench/relay/partition_tuning.h"
#include "bench/relay/simulated_schemes.h"
#include "planner/partition.h"

namespace baton {
namespace {

constexpr double kLatency = 50e-6;
constexpr int kMaxGridRanks = 4;
constexpr int kStridesPerPrompt = 32;  // times the min stride of real runs

absl::Status CheckOptions(const RelayTuningOptions& options) {
  const auto check = [](const char* name, int value, int min, int max) -> absl::Status {
    if (value >= min && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("tune: %s is %d; it must be from %d to %d", name, value, min, max));
  };
  if (options.ranks.empty() || options.tokens.empty()) {
    return absl::InvalidArgumentError("tune: --ranks and --tokens need a number each");
  }
  for (const int ranks : options.ranks) RETURN_IF_ERROR(check("--ranks", ranks, 2, 16));
  RETURN_IF_ERROR(check("--rounds", options.rounds, 1, 100));
  const int max_ranks = *std::max_element(options.ranks.begin(), options.ranks.end());
  const int page = options.rig.engine.page_tokens;
  for (const int tokens : options.tokens) {
    RETURN_IF_ERROR(check("--tokens", tokens, 4 * page * max_ranks, 1 << 20));
    if (tokens % page == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "tune: --tokens %d; it must be a multiple of the %d tokens of a page", tokens, page));
  }
  if (!(options.link >= 1e3 && options.link <= 1e15)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tune: --link %g; it must be from 1e3 to 1e15 bytes/s", options.link));
  }
  return absl::OkStatus();
}

std::vector<double> Simulated(const SimulatedCluster& cluster, double tokens, int ranks) {
  if (ranks > kMaxGridRanks) return SearchedRelay(cluster, tokens, ranks);
  const PartitionTime time = [&](std::span<const double> slices) {
    return SimulateCutThrough(cluster, slices, 0, {}).first_token;
  };
  constexpr double kGridStride = 64;
  FoundPartition grid = GridSearch(time, tokens, ranks, kGridStride);
  // The grid starts with even slices and does not reach the partitions of slow links.
  std::vector<double> closed = ClosedSlices(cluster, tokens, ranks);
  return time(closed) < grid.seconds ? closed : grid.slices;
}

// Real runs with one number of ranks.
class RealRuns {
 public:
  explicit RealRuns(RelayRig& rig) : rig_(rig) {}

  absl::StatusOr<std::vector<double>> Improve(const std::vector<double>& start, int tokens,
                                              ProgressBar& progress) {
    absl::Status failed;
    std::map<std::vector<int>, double> seconds;  // of the partitions tried
    const PartitionTime time = [&](std::span<const double> slices) {
      const std::vector<int> whole = RoundSlices(slices, tokens, rig_.page_tokens());
      const auto [tried, is_new] = seconds.emplace(whole, 0);
      if (is_new && failed.ok()) {
        progress.Next(absl::StrFormat("%d tokens as %s", tokens, absl::StrJoin(whole, " ")));
        const absl::StatusOr<double> measured = FirstToken(whole);
        failed = measured.status();
        if (measured.ok()) tried->second = *measured;
      }
      return failed.ok() ? tried->second : std::numeric_limits<double>::infinity();
    };
    const double stride = std::max<double>(rig_.page_tokens(), 1.0 * tokens / kStridesPerPrompt);
    FoundPartition found = CoordinateSearch(time, start, stride);
    RETURN_IF_ERROR(failed);
    const std::vector<int> whole = RoundSlices(found.slices, tokens, rig_.page_tokens());
    return whole.size() == start.size() ? std::vector<double>(whole.begin(), whole.end()) : start;
  }

 private:
  absl::StatusOr<double> FirstToken(const std::vector<int>& slices) {
    std::vector<RankRun> runs = rig_.ChainRuns(slices, 1);
    for (RankRun& run : runs) run.cuts_through = run.streams = true;
    ASSIGN_OR_RETURN(const RelayRig::Outcome outcome, rig_.Run(runs));
    return outcome.ranks[slices.size() - 1].computed - outcome.begin;
  }

  RelayRig& rig_;
};

}  // namespace

absl::StatusOr<RelayTuned> TuneRelay(const RelayTuningOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::vector<int> lengths = options.tokens;
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  RelayRigOptions rig_options = options.rig;
  rig_options.max_tokens = lengths.back();
  rig_options.with_sink = rig_options.with_wide = false;
  RelayTuned tuned;
  ProgressBar progress(
      "tuning", ProgressUnit::kParts,
      static_cast<double>(CostMeasurements(lengths, options.rounds, true) +
                          (options.measure ? 10 * lengths.size() * options.ranks.size() : 0)));
  {
    rig_options.ranks = 1;
    ASSIGN_OR_RETURN(const std::unique_ptr<RelayRig> rig, RelayRig::Start(rig_options));
    ASSIGN_OR_RETURN(tuned.cost, MeasureCost(*rig, lengths, options.rounds, true, 1, &progress));
    tuned.table.model = rig->started().model;
    tuned.table.model_fingerprint = rig->started().model_fingerprint;
    tuned.table.numerics_id = rig->started().numerics_id;
  }
  SimulatedCluster& cluster = tuned.cost.cluster;
  cluster.link = {options.link, kLatency};
  tuned.table.cost = cluster.cost;
  tuned.table.cost_threads = options.rig.threads_per_rank;
  for (const int ranks : options.ranks) {
    std::unique_ptr<RelayRig> rig;
    if (options.measure) {
      rig_options.ranks = ranks;
      ASSIGN_OR_RETURN(rig, RelayRig::Start(rig_options));
    }
    std::vector<PartitionEntry>& entries = tuned.table.of_ranks[ranks];
    entries.clear();
    for (const int tokens : lengths) {
      std::vector<double> slices = Simulated(cluster, tokens, ranks);
      if (rig != nullptr) {
        ASSIGN_OR_RETURN(slices, RealRuns(*rig).Improve(slices, tokens, progress));
      }
      const double sum = std::accumulate(slices.begin(), slices.end(), 0.0);
      for (double& slice : slices) slice /= sum;
      entries.push_back({static_cast<double>(tokens), std::move(slices)});
    }
  }
  return tuned;
}

absl::Status RunRelayTuning(const RelayTuningOptions& options) {
  if (options.out.empty()) return absl::InvalidArgumentError("tune: --out FILE is missing");
  ASSIGN_OR_RETURN(const RelayTuned tuned, TuneRelay(options));
  const PrefillCost& cost = tuned.cost.cluster.cost;
  std::printf("%s, %s: a layer takes %.4g s per token, %.4g s per pair, as if %.0f tokens more; ",
              tuned.table.model.c_str(), tuned.table.numerics_id.c_str(), cost.token, cost.pair,
              cost.extra_tokens);
  std::printf("fitted to %zu slices with an error of %.1f %%\n", tuned.cost.slices.size(),
              100 * tuned.cost.error);
  for (const MeasuredSlice& slice : tuned.cost.slices) {
    std::printf("  %6d tokens behind %6d: %9.3f ms a layer, %9.3f by the constants\n", slice.tokens,
                slice.before, 1e3 * slice.layer_seconds, 1e3 * slice.fitted_seconds);
  }
  for (const auto& [ranks, entries] : tuned.table.of_ranks) {
    for (const PartitionEntry& entry : entries) {
      std::printf("  %d ranks, %6.0f tokens: %s (%s)\n", ranks, entry.tokens,
                  absl::StrJoin(entry.ratios, " ",
                                [](std::string* out, double ratio) {
                                  absl::StrAppendFormat(out, "%.3f", ratio);
                                })
                      .c_str(),
                  options.measure ? "measured" : "simulation with the fitted constants");
    }
  }
  std::ofstream file(options.out);
  file << PartitionTableText(tuned.table);
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(options.out, ": cannot be written"));
  std::printf("written to %s\n", options.out.c_str());
  return absl::OkStatus();
}

}  // namespace baton
