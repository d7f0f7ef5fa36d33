#include "planner/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"

namespace baton {
namespace {

// Error of a root, as a share: far below what the rounding of slices to pages leaves.
constexpr double kRootError = 1e-10;
constexpr int kMaxTries = 200;

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
void SlicesOfTime(const PrefillCost& cost, double prefix, std::span<const double> speeds,
                  double time, std::vector<double>* slices) {
  slices->resize(speeds.size());
  double before = prefix;
  for (size_t i = 0; i < speeds.size(); ++i)
    before += (*slices)[i] = SliceOfTime(cost, before, time * speeds[i]);
}

// The x in [low, high] from which on excess(x), which grows with x, is positive. By secants, which
// need some ten tries; the halves of the flatter end (Illinois) and every third try a halving keep
// both ends moving.
double Root(double low, double high, auto excess) {
  double low_excess = excess(low), high_excess = excess(high);
  int side = 0;
  for (int i = 0; i < kMaxTries && high - low > kRootError * high; ++i) {
    const double secant = (low * high_excess - high * low_excess) / (high_excess - low_excess);
    const bool is_inside = secant > low && secant < high;
    const double x = is_inside && i % 3 != 2 ? secant : (low + high) / 2;
    const double at = excess(x);
    if (at > 0) {
      high = x, high_excess = at;
      if (side > 0) low_excess /= 2;
      side = 1;
    } else {
      low = x, low_excess = at;
      if (at == 0) return x;
      if (side < 0) high_excess /= 2;
      side = -1;
    }
  }
  return high;
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
  const double longest =
      cost.Layer(tokens, prefix) / *std::min_element(speeds.begin(), speeds.end());
  std::vector<double> slices;
  const double time = Root(0, longest, [&](double each) {
    SlicesOfTime(cost, prefix, speeds, each, &slices);
    return Sum(slices) - tokens;
  });
  SlicesOfTime(cost, prefix, speeds, time, &slices);
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
  // The last slice's work grows with it, the link's work falls.
  const double last = Root(0, tokens, [&](double slice) {
    return cost.Layer(slice, prefix + tokens - slice) / speeds.back() - wire(slice);
  });
  slices = EqualWork(cost, tokens - last, prefix, speeds.first(speeds.size() - 1));
  slices.push_back(last);
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
