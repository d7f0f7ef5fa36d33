#include "bench/relay/relay_bench.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "bench/relay/relay_clusters.h"
#include "bench/relay/simulated_claims.h"
#include "bench/relay/simulated_schemes.h"
#include "common/progress_bar.h"

namespace baton {
namespace {

constexpr double kLatency = 10e-6;  // seconds per message
constexpr int kMaxRanks = 64;
// Deciles of the prompts of bench/traces.
constexpr double kTraceTokens[] = {1060, 2014, 4701, 6758, 9177, 11667, 15174, 20151, 28214};

absl::Status Check(const RelaySimulationOptions& options) {
  for (const int ranks : options.ranks) {
    if (ranks < 1 || ranks > kMaxRanks) {
      return absl::InvalidArgumentError(
          absl::StrFormat("bench relay: --ranks %d; it must be from 1 to %d", ranks, kMaxRanks));
    }
  }
  for (const double tokens : options.tokens) {
    if (!(tokens >= kMaxRanks && tokens <= 1e7)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "bench relay: --tokens %.0f; it must be from %d to 10000000", tokens, kMaxRanks));
    }
  }
  for (const double link : options.links) {
    if (!(link >= 1e3 && link <= 1e15)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("bench relay: --link %.4g; it must be from 1e3 to 1e15 bytes/s", link));
    }
  }
  return absl::OkStatus();
}

RelayClaim RegretClaim(const NamedCluster& cluster, const RelaySimulationOptions& options) {
  const int max_ranks = *std::max_element(options.ranks.begin(), options.ranks.end());
  const Regret regret = PlannerRegret(cluster, options.links, kTraceTokens, max_ranks);
  return {kSimulation,
          "regret",
          absl::StrFormat("planner over the best of up to %d workers, lengths of the trace, %s, "
                          "mean of %d cells",
                          max_ranks, cluster.name, regret.cells),
          regret.mean,
          false,
          0.05,
          absl::StrFormat("worst %s; over one worker at most %+.1f %%", regret.worst_cell,
                          100 * regret.worst_against_alone)};
}

}  // namespace

absl::Status RunRelaySimulation(const RelaySimulationOptions& options) {
  RETURN_IF_ERROR(Check(options));
  std::vector<double> tokens = options.tokens;
  std::sort(tokens.begin(), tokens.end());
  std::vector<RelayResult> results;
  std::vector<RelayClaim> claims;
  std::vector<NamedCluster> clusters;
  for (const std::string& shape : options.shapes) {
    ASSIGN_OR_RETURN(clusters.emplace_back(), ClusterByName(shape));
  }
  {
    ProgressBar progress(
        "simulating", ProgressUnit::kParts,
        static_cast<double>(clusters.size() * (options.links.size() * options.ranks.size() + 1) +
                            1));
    for (NamedCluster& cluster : clusters) {
      for (const double link : options.links) {
        for (const int ranks : options.ranks) {
          progress.Next(
              absl::StrFormat("%s, %.4g GB/s, %d workers", cluster.name, link / 1e9, ranks));
          cluster.cluster.link = {link, kLatency};
          for (RelayResult& result : SimulateSchemes(cluster, tokens, ranks)) {
            results.push_back(std::move(result));
          }
        }
      }
    }
    claims = ClosedFormClaims(results);
    for (const NamedCluster& cluster : clusters) {
      progress.Next(absl::StrFormat("planner, %s", cluster.name));
      if (options.claims) claims.push_back(RegretClaim(cluster, options));
    }
    progress.Next("the paper's claims");
    if (options.claims) {
      for (RelayClaim& claim : PaperClaims()) claims.push_back(std::move(claim));
      for (const int ranks : {4, 8}) {
        for (RelayClaim& claim : NoiseClaims(ranks, 8)) claims.push_back(std::move(claim));
      }
    }
  }
  PrintRelayTable(results);
  PrintRelayClaims(claims);
  if (options.json) PrintRelayJson(results, claims);
  return absl::OkStatus();
}

}  // namespace baton
