#include "bench/relay/cost_measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "planner/cost_fit.h"

namespace baton {
namespace {

constexpr int kFitPasses = 40;  // over all slices: a fit that forgets then weighs them alike

// A larger error means that other work disturbed the times; then more rounds run, at most
// kMaxRounds times the requested number.
constexpr double kGoodError = 0.02;
constexpr int kMaxRounds = 2;

struct Share {
  double before, tokens;  // tokens of a prompt
};
// Pairs are half of the time of the last slice, so their share is well determined.
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

// Touches the memory of every process and maps the pages of its weights' file.
absl::Status WarmUp(RelayRig& rig, int tokens) {
  std::vector<RankRun> runs = rig.Runs(tokens, 1);
  for (int i = 0; i < rig.ranks() + (rig.options().with_wide ? 1 : 0); ++i) {
    runs[static_cast<size_t>(i)].end =
        std::max(rig.page_tokens(), WholePages(tokens / 8.0, rig.page_tokens()));
  }
  return rig.Run(runs).status();
}

// A slice of a prompt of n tokens, and its min times in each process that computed it.
struct TimedSlice {
  struct Times {
    double layer = std::numeric_limits<double>::infinity(), projections = 0;  // of a layer
    double tail = std::numeric_limits<double>::infinity();  // the last layer and the head
  };
  int n, begin, end;
  std::vector<Times> best;  // (processes)

  Times Mean() const {
    Times mean = {0, 0, 0};
    for (const Times& times : best) {
      mean.layer += times.layer / static_cast<double>(best.size());
      mean.projections += times.projections / static_cast<double>(best.size());
      mean.tail += times.tail / static_cast<double>(best.size());
    }
    return mean;
  }
};

std::vector<TimedSlice> SlicesOf(const std::vector<int>& tokens, bool detail, int at_once,
                                 int page_tokens) {
  std::vector<TimedSlice> slices;
  for (const int n : tokens) {
    for (const Share& share : SharesOf(detail)) {
      const double end = share.before + share.tokens;
      const TimedSlice slice = {n, WholePages(share.before * n, page_tokens),
                                end >= 1 ? n : WholePages(end * n, page_tokens),
                                std::vector<TimedSlice::Times>(static_cast<size_t>(at_once))};
      if (slice.end > slice.begin) slices.push_back(slice);
    }
  }
  return slices;
}

absl::Status Time(RelayRig& rig, TimedSlice* slice) {
  std::vector<RankRun> runs = rig.Runs(slice->n, 1);
  for (size_t i = 0; i < slice->best.size(); ++i) {
    runs[i].begin = slice->begin;
    runs[i].end = slice->end;
  }
  ASSIGN_OR_RETURN(const RelayRig::Outcome outcome, rig.Run(runs));
  for (size_t i = 0; i < slice->best.size(); ++i) {
    const RankDone& done = outcome.ranks[i];
    TimedSlice::Times& best = slice->best[i];
    // The median, because other work on the machine disturbs some of the layers.
    if (done.median_layer < best.layer) {
      best.layer = done.median_layer;
      best.projections = done.projections / done.layers * done.median_layer;
    }
    best.tail = std::min(best.tail, done.computed - outcome.begin - done.layers);
  }
  return absl::OkStatus();
}

MeasuredCost Fitted(const std::vector<TimedSlice>& slices, const RelayRig& rig) {
  MeasuredCost measured;
  PrefillCost& cost = measured.cluster.cost;
  cost.n_layers = rig.started().n_layers;
  if (rig.options().lab.dense_mask) cost.kernel = PairKernel::kDenseMask;
  cost.kv_bytes = static_cast<double>(rig.started().page_bytes) / cost.n_layers / rig.page_tokens();
  double projections = 0;  // seconds per token
  int firsts = 0;
  for (const TimedSlice& slice : slices) {
    const TimedSlice::Times mean = slice.Mean();
    const int length = slice.end - slice.begin;
    measured.slices.push_back({length, slice.begin, mean.layer, 0});
    if (slice.begin > 0) continue;
    projections += mean.projections / length;
    ++firsts;
  }
  cost = FitSlices(measured.slices, cost);
  measured.cluster.qkv_share = std::clamp(projections / firsts / cost.token, 0.0, 1.0);
  measured.cluster.saves_last_layer = true;
  double head = std::numeric_limits<double>::infinity();
  for (const TimedSlice& slice : slices) {
    if (slice.end < slice.n) continue;
    const double saved = measured.cluster.qkv_share * cost.Linear(slice.end - slice.begin);
    head = std::min(head, slice.Mean().tail - saved);
  }
  cost.head = std::max(head, 0.0);
  for (MeasuredSlice& slice : measured.slices) {
    slice.fitted_seconds = cost.Layer(slice.tokens, slice.before);
    measured.error += std::abs(slice.fitted_seconds / slice.layer_seconds - 1);
  }
  measured.error /= static_cast<double>(measured.slices.size());
  return measured;
}

}  // namespace

PrefillCost FitSlices(const std::vector<MeasuredSlice>& slices, PrefillCost begin) {
  // The start value: the longest slice as if all its time were linear layers.
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
                                         bool detail, int at_once, ProgressBar* progress) {
  BATON_CHECK(at_once >= 1 && at_once <= rig.ranks());
  RETURN_IF_ERROR(WarmUp(rig, tokens.front()));
  std::vector<TimedSlice> slices = SlicesOf(tokens, detail, at_once, rig.page_tokens());
  MeasuredCost measured;
  for (int round = 1; round <= kMaxRounds * rounds; ++round) {
    if (progress != nullptr && round > rounds)
      progress->AddToTotal(static_cast<double>(slices.size()));
    for (TimedSlice& slice : slices) {
      if (progress != nullptr) {
        progress->Next(absl::StrFormat("tokens %d to %d of %d", slice.begin, slice.end, slice.n));
      }
      RETURN_IF_ERROR(Time(rig, &slice));
    }
    if (round < rounds) continue;
    measured = Fitted(slices, rig);
    if (measured.error <= kGoodError) break;
  }
  return measured;
}

}  // namespace baton
