#include "bench/relay/partition_tuning.h"

#include <algorithm>
#include <numeric>

#include "planner/partition.h"

namespace baton {
namespace {

constexpr double kPairWeights[] = {0, 0.5, 0.8, 1, 1.25, 1.6, 2.2};
constexpr double kEarlyShares[] = {1, 0.85, 0.7, 0.5, 0.3, 0.15, 0.05};
constexpr double kHopeless = 1.5;  // times the best; beyond it shorter early slices cannot help
constexpr double kMinStride = 16;  // tokens
constexpr int kStridesPerPrompt = 256;

std::vector<double> Shortened(std::vector<double> slices, double share, double tokens) {
  for (double& slice : slices) slice *= share;
  slices.back() = 0;
  slices.back() = tokens - std::accumulate(slices.begin(), slices.end(), 0.0);
  return slices;
}

}  // namespace

FoundPartition TunedSearch(const PartitionTime& time, const PrefillCost& cost,
                           const ChainLink& link, double tokens, double prefix, int ranks) {
  FoundPartition best;
  int evaluations = 0;
  const auto try_start = [&](std::vector<double> slices) {
    const double seconds = time(slices);
    if (evaluations++ == 0 || seconds < best.seconds) best = {std::move(slices), seconds, 0};
    return seconds;
  };
  const std::vector<double> nominal(static_cast<size_t>(ranks), 1.0);
  try_start(std::vector<double>(nominal.size(), tokens / ranks));
  if (ranks == 1) return best;
  try_start(ClosedForm(cost, link, tokens, prefix, nominal));
  for (const double share : kEarlyShares) {
    double last = 0;
    for (const double weight : kPairWeights) {
      PrefillCost weighted = cost;
      weighted.pair *= weight;
      last = try_start(Shortened(EqualWork(weighted, tokens, prefix, nominal), share, tokens));
    }
    if (last > kHopeless * best.seconds) break;
  }
  FoundPartition found =
      CoordinateSearch(time, best.slices, std::max(tokens / kStridesPerPrompt, kMinStride));
  found.evaluations += evaluations;
  return found;
}

}  // namespace baton
