#include "bench/cost_measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "planner/cost_fit.h"

namespace baton {
namespace {

constexpr int kFitPasses = 40;  // over all slices: a fit that forgets weighs them alike then

struct Share {
  double before, tokens;  // of a prompt
};
// Pairs are half of the time of the last one, so its share is well determined.
constexpr Share kShares[] = {{0, 0.25}, {0, 0.125}, {0.5, 0.125}, {0.875, 0.125}};
constexpr Share kMoreShares[] = {{0, 0.5}, {0.5, 0.5}, {0.75, 0.25}, {0, 0.0625}};

std::vector<Share> SharesOf(bool detail) {
  std::vector<Share> shares(std::begin(kShares), std::end(kShares));
  if (detail) shares.insert(shares.end(), std::begin(kMoreShares), std::end(kMoreShares));
  return shares;
}

int WholePages(double tokens, int page_tokens) {
  return static_cast<int>(std::lround(tokens / page_tokens)) * page_tokens;
}

// In every process memory is touched, and pages of the weights' file are mapped.
absl::Status WarmUp(RelayRig& rig, int tokens) {
  std::vector<RankRun> runs = rig.Runs(tokens, 1);
  for (int i = 0; i < rig.ranks() + (rig.options().with_wide ? 1 : 0); ++i) {
    runs[static_cast<size_t>(i)].end =
        std::max(rig.page_tokens(), WholePages(tokens / 8.0, rig.page_tokens()));
  }
  return rig.Run(runs).status();
}

// Of a prompt, and the best of what it took so far.
struct TimedSlice {
  int begin, end;
  double layer = std::numeric_limits<double>::infinity(), projections = 0;  // of a layer
  double tail = std::numeric_limits<double>::infinity();  // the last layer and the head
};

std::vector<TimedSlice> SlicesOf(int n, bool detail, int page_tokens) {
  std::vector<TimedSlice> slices;
  for (const Share& share : SharesOf(detail)) {
    const double end = share.before + share.tokens;
    const TimedSlice slice = {WholePages(share.before * n, page_tokens),
                              end >= 1 ? n : WholePages(end * n, page_tokens)};
    if (slice.end > slice.begin) slices.push_back(slice);
  }
  return slices;
}

absl::Status Time(RelayRig& rig, int n, int at_once, TimedSlice* slice) {
  std::vector<RankRun> runs = rig.Runs(n, 1);
  for (int i = 0; i < at_once; ++i) {
    runs[static_cast<size_t>(i)].begin = slice->begin;
    runs[static_cast<size_t>(i)].end = slice->end;
  }
  ASSIGN_OR_RETURN(const RelayRig::Outcome outcome, rig.Run(runs));
  double layer = 0, projections = 0, tail = 0;  // mean of the processes
  for (int i = 0; i < at_once; ++i) {
    const RankDone& done = outcome.ranks[static_cast<size_t>(i)];
    // The median: other work on the machine disturbs some of the layers.
    layer += done.median_layer / at_once;
    projections += done.projections / done.layers * done.median_layer / at_once;
    tail += (done.computed - outcome.begin - done.layers) / at_once;
  }
  if (layer < slice->layer) {
    slice->layer = layer;
    slice->projections = projections;
  }
  slice->tail = std::min(slice->tail, tail);
  return absl::OkStatus();
}

}  // namespace

PrefillCost FitSlices(const std::vector<MeasuredSlice>& slices, PrefillCost begin) {
  // Something to start from: the longest slice as if all its time were the linear layers'.
  const auto longest = std::max_element(
      slices.begin(), slices.end(),
      [](const MeasuredSlice& a, const MeasuredSlice& b) { return a.tokens < b.tokens; });
  begin.token = longest->layer_seconds / longest->tokens;
  CostFit fit(begin);
  for (int pass = 0; pass < kFitPasses; ++pass) {
    for (const MeasuredSlice& slice : slices) {
      fit.Add(slice.tokens, begin.Pairs(slice.tokens, slice.before), slice.layer_seconds);
    }
  }
  return fit.cost();
}

size_t CostMeasurements(const std::vector<int>& tokens, int rounds, bool detail) {
  return tokens.size() * SharesOf(detail).size() * static_cast<size_t>(rounds);
}

absl::StatusOr<MeasuredCost> MeasureCost(RelayRig& rig, const std::vector<int>& tokens, int rounds,
                                         bool detail, int at_once, Progress* progress) {
  CHECK(at_once >= 1 && at_once <= rig.ranks());
  MeasuredCost measured;
  const int n_layers = rig.started().n_layers;
  double linear = 0;
  double head = std::numeric_limits<double>::infinity();
  struct Tail {
    double tokens, seconds;
  };
  std::vector<Tail> tails;  // what the last layer and the head took
  RETURN_IF_ERROR(WarmUp(rig, tokens.front()));
  for (const int n : tokens) {
    std::vector<TimedSlice> slices = SlicesOf(n, detail, rig.page_tokens());
    for (int round = 0; round < rounds; ++round) {
      for (TimedSlice& slice : slices) {
        if (progress != nullptr) {
          progress->Next(absl::StrFormat("tokens %d to %d of %d", slice.begin, slice.end, n));
        }
        RETURN_IF_ERROR(Time(rig, n, at_once, &slice));
      }
    }
    for (const TimedSlice& slice : slices) {
      const int length = slice.end - slice.begin;
      measured.slices.push_back({length, slice.begin, slice.layer, 0});
      if (slice.begin == 0) linear += slice.projections / length;
      if (slice.end == n) tails.push_back({static_cast<double>(length), slice.tail});
    }
  }
  PrefillCost& cost = measured.cluster.cost;
  cost.n_layers = n_layers;
  if (rig.options().engine.attention == "dense_mask") cost.kernel = PairKernel::kDenseMask;
  cost.kv_bytes = static_cast<double>(rig.started().page_bytes) / n_layers / rig.page_tokens();
  cost = FitSlices(measured.slices, cost);
  const auto firsts = std::count_if(measured.slices.begin(), measured.slices.end(),
                                    [](const MeasuredSlice& slice) { return slice.before == 0; });
  measured.cluster.qkv_share =
      std::clamp(linear / static_cast<double>(firsts) / cost.token, 0.0, 1.0);
  measured.cluster.saves_last_layer = true;
  for (const Tail& tail : tails) {
    head = std::min(head, tail.seconds - measured.cluster.qkv_share * cost.Linear(tail.tokens));
  }
  cost.head = std::max(head, 0.0);
  for (MeasuredSlice& slice : measured.slices) {
    slice.fitted_seconds = cost.Layer(slice.tokens, slice.before);
    measured.error += std::abs(slice.fitted_seconds / slice.layer_seconds - 1);
  }
  measured.error /= static_cast<double>(measured.slices.size());
  return measured;
}

}  // namespace baton
