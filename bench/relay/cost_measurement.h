// Measures the cost of prefill on this machine: times slices of a model through the engine and fits
// the cost constants to them. One thread.
#pragma once

#include <vector>

#include "bench/relay/relay_rig.h"
#include "bench/relay/relay_simulation.h"
#include "common/progress_bar.h"

namespace baton {

struct MeasuredSlice {
  int tokens = 0, before = 0;
  double layer_seconds = 0;   // measured, median of the layers but the last
  double fitted_seconds = 0;  // predicted by the fitted constants
};

struct MeasuredCost {
  // Cost, share of the projections and the last layer's saving; links are to be set.
  SimulatedCluster cluster;
  std::vector<MeasuredSlice> slices;
  double error = 0;  // mean of |fitted / measured - 1|
};

// Token, pair and extra tokens that fit the measured times; all else is `begin`'s.
PrefillCost FitSlices(const std::vector<MeasuredSlice>& slices, PrefillCost begin);

// Slices of prompts of `tokens`, timed in turns, `rounds` times each, the fastest times fitted: a
// machine that is slow for a while is so for all of them. Where the constants do not fit well, as
// many rounds again at most. at_once: processes of the rig that compute each slice at the same
// time, as ranks of a relay do (a core among busy ones is slower, and not equally so in all it
// does); the mean of their times counts. detail: also short slices, for the constants of small
// batches.
absl::StatusOr<MeasuredCost> MeasureCost(RelayRig& rig, const std::vector<int>& tokens, int rounds,
                                         bool detail, int at_once, ProgressBar* progress);
// Number of measurements that the rounds take, for a ProgressBar; rounds that a bad fit takes
// beyond add to it.
size_t CostMeasurements(const std::vector<int>& tokens, int rounds, bool detail);

}  // namespace baton
