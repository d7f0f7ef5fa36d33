// The estimate of a chain, compared with figures of an independently written event simulation, and
// the limits of the estimate.

#include "planner/chain_estimate.h"

#include <catch2/catch.hpp>

#include "planner/partition.h"
#include "tests/planner/simulated_cost.h"

namespace baton {
namespace {

double Chain(double tokens, double prefix, int ranks, double bytes_per_second) {
  const std::vector<double> speeds(static_cast<size_t>(ranks), 1.0);
  const ChainLink link{bytes_per_second, 10e-6};
  const PrefillCost cost = SimulatedCost();
  return ChainSeconds(cost, link, ClosedForm(cost, link, tokens, prefix, speeds), prefix, speeds);
}

TEST_CASE("within 5 % of the event simulation") {
  CHECK(Chain(8192, 0, 4, 25e9) == Approx(.0665).epsilon(.05));
  CHECK(Chain(8192, 0, 8, 25e9) == Approx(.0401).epsilon(.05));
  CHECK(Chain(32768, 0, 8, 25e9) == Approx(.193).epsilon(.05));
  CHECK(Chain(8192, 16384, 8, 25e9) == Approx(.0545).epsilon(.05));
}

TEST_CASE("one rank is one worker alone, and no chain is faster than its share of the work") {
  const PrefillCost cost = SimulatedCost();
  CHECK(Chain(8192, 0, 1, 25e9) == Approx(cost.Alone(8192, 0)).epsilon(1e-12));
  for (const int ranks : {2, 4, 8}) {
    CHECK(Chain(8192, 0, ranks, 1e15) >= cost.Alone(8192, 0) / ranks);
    CHECK(Chain(8192, 0, ranks, 1e15) < 1.3 * cost.Alone(8192, 0) / ranks);
  }
}

TEST_CASE("rounds: their longest slices one after the other, and what each begins with") {
  PrefillCost cost = SimulatedCost();
  const ChainLink link{25e9, 10e-6};
  const std::vector<double> speeds = {1, 1};
  const auto seconds = [&](std::vector<double> slices) {
    return ChainSeconds(cost, link, slices, 0, speeds);
  };
  cost.extra_tokens = cost.min_linear = 0;
  const double layer = cost.Layer(4096, 0);
  const double second = cost.Layer(1000, 6000);
  const double wire = 4096 / link.bytes_per_second;
  CHECK(seconds({4096, 1904, 1000, 500}) ==
        Approx(32 * (layer + second) + (4096 + 500) * wire + 3 * link.latency).epsilon(1e-9));
}

TEST_CASE("behind the bandwidth wall more ranks do not help") {
  const double two = Chain(16384, 0, 2, 5e8), eight = Chain(16384, 0, 8, 5e8);
  CHECK(eight == Approx(two).epsilon(.02));
}

}  // namespace
}  // namespace baton
