#include "planner/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"

namespace baton {
namespace {

// Halvings of an interval until doubles cannot tell its ends apart.
constexpr int kHalvings = 100;

// Key tile and segment of attention, numerics v1.
constexpr int kTileTokens = 128, kSegmentTokens = 512;
constexpr int kTileSlices = 2048, kSegmentSlices = 16384;

// Solves square * tokens^2 + linear * tokens = work for tokens.
double PositiveRoot(double square, double linear, double work) {
  if (work <= 0) return 0;
  if (square <= 0) return work / linear;
  return (std::sqrt(linear * linear + 4 * square * work) - linear) / (2 * square);
}

// Tokens behind `before` whose layer takes `time`; 0 if any number of tokens takes longer.
double SliceOfTime(const PrefillCost& cost, double before, double time) {
  const double square = cost.pair * (cost.kernel == PairKernel::kCausal ? 0.5 : 1.0);
  const double linear = cost.token + cost.pair * before;
  const double slice = PositiveRoot(square, linear, time - cost.token * cost.extra_tokens);
  // Up to this many tokens the linear layers take min_linear, and only pairs count.
  const double free = cost.min_linear / cost.token - cost.extra_tokens;
  if (slice >= free) return slice;
  const double work = time - cost.min_linear;
  if (work <= 0) return 0;
  if (square <= 0 && before <= 0) return free;
  return std::min(free, PositiveRoot(square, cost.pair * before, work));
}

// Adjacent slices that take `time` per layer each.
std::vector<double> SlicesOfTime(const PrefillCost& cost, double prefix,
                                 std::span<const double> speeds, double time) {
  std::vector<double> slices;
  slices.reserve(speeds.size());
  double before = prefix;
  for (const double speed : speeds) {
    const double slice = SliceOfTime(cost, before, time * speed);
    slices.push_back(slice);
    before += slice;
  }
  return slices;
}

double Sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The longest time of a rank for its slice in one layer.
double LongestLayer(const PrefillCost& cost, double prefix, std::span<const double> slices,
                    std::span<const double> speeds) {
  double longest = 0, before = prefix;
  for (size_t i = 0; i < slices.size(); ++i) {
    longest = std::max(longest, cost.Layer(slices[i], before) / speeds[i]);
    before += slices[i];
  }
  return longest;
}

// Unit of slice boundaries.
int BoundaryUnit(std::span<const double> slices, int page_tokens) {
  const double min_slice = *std::min_element(slices.begin(), slices.end());
  if (min_slice >= kSegmentSlices) return std::max(page_tokens, kSegmentTokens);
  if (min_slice >= kTileSlices) return std::max(page_tokens, kTileTokens);
  return page_tokens;
}

}  // namespace

std::vector<double> EqualWork(const PrefillCost& cost, double tokens, double prefix,
                              std::span<const double> speeds) {
  BATON_CHECK(!speeds.empty() && cost.token > 0 && cost.pair >= 0);
  double low = 0;
  double high = cost.Layer(tokens, prefix) / *std::min_element(speeds.begin(), speeds.end());
  for (int i = 0; i < kHalvings; ++i) {
    const double time = (low + high) / 2;
    (Sum(SlicesOfTime(cost, prefix, speeds, time)) > tokens ? high : low) = time;
  }
  std::vector<double> slices = SlicesOfTime(cost, prefix, speeds, high);
  slices.back() += tokens - Sum(slices);
  return slices;
}

std::vector<double> ClosedForm(const PrefillCost& cost, const ChainLink& link, double tokens,
                               double prefix, std::span<const double> speeds, double handed_on) {
  std::vector<double> slices = EqualWork(cost, tokens, prefix, speeds);
  if (speeds.size() == 1) return slices;
  const auto wire = [&](double last) {
    return cost.kv_bytes * (handed_on + tokens - last) / link.bytes_per_second;
  };
  if (wire(slices.back()) <= LongestLayer(cost, prefix, slices, speeds)) return slices;
  double low = 0, high = tokens;  // bounds of the last slice: its work grows with it, the link's
                                  // work falls
  for (int i = 0; i < kHalvings; ++i) {
    const double last = (low + high) / 2;
    const double work = cost.Layer(last, prefix + tokens - last) / speeds.back();
    (work < wire(last) ? low : high) = last;
  }
  slices = EqualWork(cost, tokens - high, prefix, speeds.first(speeds.size() - 1));
  slices.push_back(high);
  return slices;
}

std::vector<int> RoundSlices(std::span<const double> slices, int tokens, int page_tokens) {
  BATON_CHECK(!slices.empty() && tokens > 0);
  const int unit = BoundaryUnit(slices, page_tokens);
  std::vector<int> rounded;
  double end = 0;
  int begin = 0;
  for (size_t i = 0; i + 1 < slices.size(); ++i) {
    end += slices[i];
    const int boundary = static_cast<int>(std::lround(end / unit)) * unit;
    if (boundary <= begin || tokens - boundary < page_tokens) continue;
    rounded.push_back(boundary - begin);
    begin = boundary;
  }
  rounded.push_back(tokens - begin);
  return rounded;
}

std::vector<int64_t> LinkTokens(std::span<const int> slices) {
  std::vector<int64_t> carried;
  int64_t sum = 0;
  for (size_t i = 0; i + 1 < slices.size(); ++i) carried.push_back(sum += slices[i]);
  return carried;
}

std::vector<double> InterpolateRatios(std::span<const PartitionEntry> table, double tokens) {
  BATON_CHECK(!table.empty());
  const auto above = std::lower_bound(
      table.begin(), table.end(), tokens,
      [](const PartitionEntry& entry, double wanted) { return entry.tokens < wanted; });
  if (above == table.begin()) return table.front().ratios;
  if (above == table.end()) return table.back().ratios;
  const PartitionEntry& below = *std::prev(above);
  BATON_CHECK(below.ratios.size() == above->ratios.size());
  const double share = (tokens - below.tokens) / (above->tokens - below.tokens);
  std::vector<double> ratios(below.ratios.size());
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = below.ratios[i] + share * (above->ratios[i] - below.ratios[i]);
  }
  return ratios;
}

}  // namespace baton
