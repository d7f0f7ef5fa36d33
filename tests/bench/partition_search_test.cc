// The paper's grid search and the coordinate search, on objectives with a known optimum.

#include "bench/relay/partition_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "planner/partition.h"

namespace baton {
namespace {

// Returns the time of the slowest rank of a chain with free links; the optimum is equal work.
double LongestRank(const PrefillCost& cost, std::span<const double> slices) {
  double longest = 0, before = 0;
  for (const double slice : slices) {
    longest = std::max(longest, cost.Layer(slice, before));
    before += slice;
  }
  return longest;
}

PrefillCost PaperCost() {
  PrefillCost cost;
  cost.token = 7.715e-5 / 32;
  cost.pair = 1.979e-8 / 32;
  cost.kernel = PairKernel::kDenseMask;
  return cost;
}

TEST_CASE("grid search: the paper's shape and number of evaluations") {
  const PrefillCost cost = PaperCost();
  const PartitionTime time = [&](std::span<const double> slices) {
    return LongestRank(cost, slices);
  };
  const FoundPartition two = GridSearch(time, 16384, 2, 64);
  CHECK(two.slices[0] == Approx(9784).margin(64));  // published: 9,728
  for (const int ranks : {2, 3, 4}) {
    const FoundPartition found = GridSearch(time, 16384, ranks, 64);
    const std::vector<double> best =
        EqualWork(cost, 16384, 0, std::vector<double>(static_cast<size_t>(ranks), 1.0));
    CHECK(found.seconds <= 1.01 * LongestRank(cost, best));
    CHECK(found.seconds == time(found.slices));
    CHECK(std::accumulate(found.slices.begin(), found.slices.end(), 0.0) == Approx(16384));
    int max_per_level = 1;
    for (int i = 1; i < ranks; ++i) max_per_level *= 5;
    CHECK(found.evaluations > max_per_level);
    CHECK(found.evaluations <= 8 * max_per_level);
  }
}

// Close to the slowest rank's time, but smooth: moving one boundary at a time leads to the optimum.
double NearlyLongestRank(const PrefillCost& cost, std::span<const double> slices) {
  double sum = 0, before = 0;
  for (const double slice : slices) {
    sum += std::pow(cost.Layer(slice, before), 4);
    before += slice;
  }
  return std::pow(sum, 0.25);
}

TEST_CASE("coordinate search: from even slices to equal work, for many ranks") {
  const PrefillCost cost = PaperCost();
  const PartitionTime time = [&](std::span<const double> slices) {
    return NearlyLongestRank(cost, slices);
  };
  for (const int ranks : {1, 2, 4, 8}) {
    const std::vector<double> even(static_cast<size_t>(ranks), 16384.0 / ranks);
    const FoundPartition found = CoordinateSearch(time, even, 16);
    const std::vector<double> best =
        EqualWork(cost, 16384, 0, std::vector<double>(static_cast<size_t>(ranks), 1.0));
    CHECK(found.seconds <= 1.02 * time(best));
    if (ranks > 1) CHECK(found.seconds < 0.99 * time(even));
    CHECK(std::accumulate(found.slices.begin(), found.slices.end(), 0.0) == Approx(16384));
    CHECK(found.evaluations <= 8 * 2 * 4 * ranks + 1);
  }
}

}  // namespace
}  // namespace baton
