// The choice of a degree: right in the clear cases, and never worse than one worker by its own
// predictions.

#include "planner/degree.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "planner/chain_estimate.h"

namespace baton {
namespace {

// A 1B shape on two cores; its KV of one layer of 4,096 tokens is 8 MiB.
PrefillCost Cost() {
  PrefillCost cost;
  cost.n_layers = 16;
  cost.token = 3e-4;
  cost.pair = 3.3e-8;
  cost.extra_tokens = 8;
  cost.kv_bytes = 2048;
  cost.head = 2e-3;
  return cost;
}
constexpr ChainLink kFast{2e9, 1e-4};

std::vector<OfferedWorker> Idle(int n) {
  return std::vector<OfferedWorker>(static_cast<size_t>(n));
}

size_t Ranks(int tokens, const std::vector<OfferedWorker>& offered, const ChainLink& link = kFast,
             double waiting = 0) {
  return ChooseDegree(Cost(), link, PlanRecord(), offered, {.tokens = tokens, .waiting = waiting})
      .slices.size();
}

TEST_CASE("long prompts are shared by all idle workers, short ones by none") {
  CHECK(Ranks(4096, Idle(1)) == 1);
  CHECK(Ranks(4096, Idle(2)) == 2);
  CHECK(Ranks(32768, Idle(8)) == 8);
  CHECK(Ranks(100, Idle(8)) == 1);  // one page and a bit: a second rank would have a page
  CHECK(Ranks(63, Idle(8)) == 1);
}

TEST_CASE("a slow link: fewer ranks, then one") {
  const size_t fast = Ranks(8192, Idle(8), {1e9, 1e-4});
  const size_t slow = Ranks(8192, Idle(8), {2e6, 1e-4});
  CHECK(fast == 8);
  CHECK(slow < fast);
  CHECK(Ranks(8192, Idle(8), {1e4, 1e-4}) == 1);
}

TEST_CASE("nobody waits for a gang that is not there") {
  std::vector<OfferedWorker> offered = Idle(2);
  offered[1].seconds = 1000;
  const Degree degree = ChooseDegree(Cost(), kFast, PlanRecord(), offered, {.tokens = 4096});
  CHECK(degree.slices.size() == 1);
  CHECK(degree.first == 0);
  std::swap(offered[0], offered[1]);
  CHECK(ChooseDegree(Cost(), kFast, PlanRecord(), offered, {.tokens = 4096}).first == 1);
}

TEST_CASE("where prompts wait, the work a relay costs in all counts") {
  CHECK(Ranks(256, Idle(4), kFast, 0) > 1);
  CHECK(Ranks(256, Idle(4), kFast, 100) == 1);
}

TEST_CASE("a kind of relay that was slower than one worker is barred until the cost is refitted") {
  PlanRecord record;
  const auto ranks = [&] {
    return ChooseDegree(Cost(), kFast, record, Idle(2), {.tokens = 4096}).slices.size();
  };
  CHECK(ranks() == 2);
  record.Add(4096, 2, 10, 25, 20);
  CHECK(record.barred(4096, 2));
  CHECK(ranks() == 1);
  CHECK_FALSE(record.barred(1024, 2));
  record.Refitted();
  CHECK_FALSE(record.barred(4096, 2));
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 10, 10.1, 20);
  CHECK(record.error(4096, 2) == Approx(.01).margin(1e-3));
  CHECK(ranks() == 2);
  // Predictions that are off by more than a relay gains: not worth the risk.
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 8, 19.9, 20);
  CHECK(ranks() == 1);
}

TEST_CASE("whatever is offered: slices add up, and the prediction is not above one worker's") {
  std::mt19937 random(5);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  size_t most = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<OfferedWorker> offered = Idle(1 + static_cast<int>(random() % 8));
    for (OfferedWorker& worker : offered) worker = {between(.25, 2), between(1e-3, 1)};
    const ChainLink link{between(1e5, 1e10), 1e-4};
    const DegreeRequest request{.tokens = static_cast<int>(between(1, 1e5)),
                                .prefix = 64 * static_cast<int>(random() % 100),
                                .waiting = between(1e-3, 10)};
    const Degree degree = ChooseDegree(Cost(), link, PlanRecord(), offered, request);
    CHECK(std::accumulate(degree.slices.begin(), degree.slices.end(), 0) == request.tokens);
    CHECK(degree.first + degree.slices.size() <= offered.size());
    CHECK(degree.seconds <= degree.alone);
    most = std::max(most, degree.slices.size());
  }
  CHECK(most >= 4);
}

}  // namespace
}  // namespace baton
