// The closed form, compared with published partitions, its optimality conditions, and random
// problems. Published figures: arXiv 2405.05329.

#include "planner/partition.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

namespace baton {
namespace {

// Llama-7B on an A100 with the paper's dense kernel: T1 = 7.715e-5 C + 1.979e-8 C^2 over 32 layers.
PrefillCost PaperCost() {
  PrefillCost cost;
  cost.n_layers = 32;
  cost.token = 7.715e-5 / 32;
  cost.pair = 1.979e-8 / 32;
  cost.kv_bytes = 16384;
  cost.kernel = PairKernel::kDenseMask;
  return cost;
}

// Llama-3-8B on an H100 with a causal kernel.
PrefillCost CausalCost() {
  PrefillCost cost;
  cost.n_layers = 32;
  cost.token = 7.927e-7;
  cost.pair = 3.641e-11;
  cost.kv_bytes = 4096;
  return cost;
}

std::vector<double> Nominal(int ranks) {
  return std::vector<double>(static_cast<size_t>(ranks), 1.0);
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void CheckRatios(const std::vector<double>& slices, const std::vector<double>& expected,
                 double margin) {
  REQUIRE(slices.size() == expected.size());
  const double tokens = Sum(slices);
  for (size_t i = 0; i < slices.size(); ++i) {
    CHECK(slices[i] / tokens == Approx(expected[i]).margin(margin));
  }
}

TEST_CASE("published partitions") {
  // The paper searched these on A100s in 33 hours each; the closed form has b/q = 3,898.
  CheckRatios(EqualWork(PaperCost(), 10240, 0, Nominal(4)), {.348, .257, .212, .184}, 5e-4);
  CheckRatios(EqualWork(PaperCost(), 10240, 0, Nominal(4)), {.350, .255, .210, .185}, 5e-3);
  CHECK(EqualWork(PaperCost(), 16384, 0, Nominal(2))[0] == Approx(9784).margin(1));
}

TEST_CASE("partitions of a causal kernel, and behind a prefix") {
  CheckRatios(EqualWork(CausalCost(), 16384, 0, Nominal(4)), {.308, .259, .228, .205}, 5e-4);
  CheckRatios(EqualWork(CausalCost(), 16384, 0, Nominal(8)),
              {.162, .146, .134, .125, .117, .111, .105, .100}, 5e-4);
  CheckRatios(EqualWork(PaperCost(), 8192, 57344, Nominal(4)), {.262, .253, .246, .239}, 5e-4);
}

TEST_CASE("the paper's one-worker times follow from the fit") {
  const std::pair<double, double> times[] = {{2048, .24}, {4096, .65}, {8192, 1.95}, {12288, 3.95}};
  for (const auto& [tokens, seconds] : times) {
    CHECK(PaperCost().Alone(tokens, 0) == Approx(seconds).epsilon(.006).margin(.005));
  }
}

struct Problem {
  PrefillCost cost;
  ChainLink link;
  double tokens, prefix;
  std::vector<double> speeds;
};

Problem RandomProblem(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  Problem problem;
  problem.cost = CausalCost();
  problem.cost.token *= between(0.1, 100);
  problem.cost.pair *= between(0.1, 100);
  if (random() % 2 == 0) problem.cost.kernel = PairKernel::kDenseMask;
  problem.link = {between(1e7, 1e12), 0};
  problem.tokens = std::round(between(100, 2e5));
  problem.prefix = random() % 2 == 0 ? 0 : std::round(between(1, 2e5));
  const int ranks = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < ranks; ++i) problem.speeds.push_back(between(0.25, 2));
  return problem;
}

// Returns the seconds per layer of each rank.
std::vector<double> LayerTimes(const Problem& problem, const std::vector<double>& slices) {
  std::vector<double> times;
  double before = problem.prefix;
  for (size_t i = 0; i < slices.size(); ++i) {
    times.push_back(problem.cost.Layer(slices[i], before) / problem.speeds[i]);
    before += slices[i];
  }
  return times;
}

TEST_CASE("equal work: slices add up, are positive, and take the same time") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const Problem problem = RandomProblem(random);
    const std::vector<double> slices =
        EqualWork(problem.cost, problem.tokens, problem.prefix, problem.speeds);
    CHECK(Sum(slices) == Approx(problem.tokens).epsilon(1e-12));
    const std::vector<double> times = LayerTimes(problem, slices);
    for (size_t i = 0; i < slices.size(); ++i) {
      CHECK(slices[i] > 0);
      CHECK(times[i] == Approx(times[0]).epsilon(1e-6));
    }
  }
}

TEST_CASE("equal work where the least time of the linear layers or small batches count") {
  std::mt19937 random(5);
  int floors = 0;
  for (int round = 0; round < 500; ++round) {
    Problem problem = RandomProblem(random);
    problem.cost.extra_tokens = static_cast<double>(random() % 300);
    problem.cost.min_linear = problem.cost.token * static_cast<double>(random() % 5000);
    const std::vector<double> slices = EqualWork(problem.cost, problem.tokens, problem.prefix,
                                                 Nominal(static_cast<int>(problem.speeds.size())));
    problem.speeds = Nominal(static_cast<int>(slices.size()));
    CHECK(Sum(slices) == Approx(problem.tokens).epsilon(1e-12));
    const std::vector<double> times = LayerTimes(problem, slices);
    for (size_t i = 0; i < slices.size(); ++i) {
      CHECK(slices[i] > 0);
      CHECK(times[i] == Approx(times[0]).epsilon(1e-6));
      floors += problem.cost.Linear(slices[i]) == problem.cost.min_linear;
    }
  }
  CHECK(floors > 100);
}

TEST_CASE("equal speeds: later slices are shorter, and even behind a long prefix") {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    Problem problem = RandomProblem(random);
    const std::vector<double> nominal = Nominal(static_cast<int>(problem.speeds.size()));
    const std::vector<double> slices =
        EqualWork(problem.cost, problem.tokens, problem.prefix, nominal);
    CHECK(std::is_sorted(slices.rbegin(), slices.rend()));
    const std::vector<double> behind =
        EqualWork(problem.cost, problem.tokens, 1e4 * problem.tokens + 1e12, nominal);
    CHECK(behind.back() / behind.front() == Approx(1).margin(1e-3));
  }
}

TEST_CASE("bandwidth wall: work and wire of the last rank meet, or the wire hides") {
  std::mt19937 random(3);
  int walls = 0;
  for (int round = 0; round < 500; ++round) {
    const Problem problem = RandomProblem(random);
    if (problem.speeds.size() == 1) continue;
    const std::vector<double> slices =
        ClosedForm(problem.cost, problem.link, problem.tokens, problem.prefix, problem.speeds);
    CHECK(Sum(slices) == Approx(problem.tokens).epsilon(1e-12));
    const std::vector<double> times = LayerTimes(problem, slices);
    const double wire =
        problem.cost.kv_bytes * (problem.tokens - slices.back()) / problem.link.bytes_per_second;
    const double longest = *std::max_element(times.begin(), times.end());
    CHECK(wire <= longest * (1 + 1e-6));
    const std::vector<double> even_work =
        EqualWork(problem.cost, problem.tokens, problem.prefix, problem.speeds);
    if (slices == even_work) continue;
    ++walls;
    CHECK(slices.back() > even_work.back());
    CHECK(wire == Approx(times.back()).epsilon(1e-6));
  }
  CHECK(walls > 50);
}

TEST_CASE("a link of no bandwidth leaves the prompt to the last rank") {
  const std::vector<double> slices = ClosedForm(CausalCost(), {1.0, 0}, 16384, 0, Nominal(4));
  CHECK(slices.back() == Approx(16384).epsilon(1e-3));
}

TEST_CASE("rounding: whole pages, the last slice ends the prompt, empty slices go") {
  CHECK(RoundSlices(std::vector<double>{400.2, 350, 249.8}, 1000, 64) ==
        std::vector<int>{384, 384, 232});
  CHECK(RoundSlices(std::vector<double>{10, 20, 970}, 1000, 64) == std::vector<int>{1000});
  CHECK(RoundSlices(std::vector<double>{500, 490, 10}, 1000, 64) == std::vector<int>{512, 488});
  CHECK(RoundSlices(std::vector<double>{1000}, 1000, 64) == std::vector<int>{1000});
  // Long slices are whole key tiles or whole segments.
  CHECK(RoundSlices(std::vector<double>{2900, 2100}, 5000, 16) == std::vector<int>{2944, 2056});
  CHECK(RoundSlices(std::vector<double>{17000, 16500}, 33500, 16) ==
        std::vector<int>{16896, 16604});
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const Problem problem = RandomProblem(random);
    const int tokens = static_cast<int>(problem.tokens);
    const int page = 16 << (random() % 3);
    const std::vector<int> slices = RoundSlices(
        ClosedForm(problem.cost, problem.link, problem.tokens, problem.prefix, problem.speeds),
        tokens, page);
    CHECK(slices.size() <= problem.speeds.size());
    CHECK(std::accumulate(slices.begin(), slices.end(), 0) == tokens);
    for (size_t i = 0; i < slices.size(); ++i) {
      CHECK((slices[i] >= page || slices.size() == 1));
      if (i + 1 < slices.size()) CHECK(slices[i] % page == 0);
    }
  }
}

TEST_CASE("links carry each token once") {
  CHECK(LinkTokens(std::vector<int>{4, 3, 2}) == std::vector<int64_t>{4, 7});
  CHECK(LinkTokens(std::vector<int>{9}).empty());
}

TEST_CASE("ratios between two entries of a table") {
  const std::vector<PartitionEntry> table = {{8192, {.36, .26, .20, .18}},
                                             {12288, {.34, .25, .22, .19}}};
  CheckRatios(InterpolateRatios(table, 10240), {.35, .255, .21, .185}, 1e-12);
  CheckRatios(InterpolateRatios(table, 8192), table[0].ratios, 1e-12);
  CheckRatios(InterpolateRatios(table, 100), table[0].ratios, 1e-12);
  CheckRatios(InterpolateRatios(table, 1e6), table[1].ratios, 1e-12);
}

}  // namespace
}  // namespace baton
