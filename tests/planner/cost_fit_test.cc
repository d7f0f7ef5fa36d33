// The online fit finds the constants behind the times of layers through noise, follows a change,
// and survives input without information.

#include "planner/cost_fit.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace baton {
namespace {

// A 1B shape on two cores.
PrefillCost Truth() {
  PrefillCost cost;
  cost.n_layers = 16;
  cost.token = 3e-4;
  cost.pair = 3.3e-8;
  cost.extra_tokens = 20;
  return cost;
}

PrefillCost Guess() {
  PrefillCost cost = Truth();
  cost.token *= 5;
  cost.pair /= 7;
  cost.extra_tokens = 0;
  return cost;
}

// Adds a layer of a random slice of a prompt, as a worker measures it.
void AddRandomLayer(const PrefillCost& truth, double noise, std::mt19937& random, CostFit& fit) {
  const double tokens = std::uniform_int_distribution(16, 2048)(random);
  const double before = 64.0 * std::uniform_int_distribution(0, 255)(random);
  const double factor = std::exp(noise * std::normal_distribution<double>()(random));
  fit.Add(tokens, truth.Pairs(tokens, before), truth.Layer(tokens, before) * factor);
}

double WorstError(const PrefillCost& cost, const PrefillCost& truth) {
  double worst = 0;
  for (const double tokens : {64.0, 512.0, 4096.0}) {
    for (const double before : {0.0, 4096.0, 16384.0}) {
      worst =
          std::max(worst, std::abs(cost.Layer(tokens, before) / truth.Layer(tokens, before) - 1));
    }
  }
  return worst;
}

TEST_CASE("a few exact layers are enough") {
  std::mt19937 random(1);
  CostFit fit(Guess());
  CHECK(WorstError(fit.cost(), Truth()) > 0.5);
  for (int i = 0; i < 12; ++i) AddRandomLayer(Truth(), 0, random, fit);
  CHECK(WorstError(fit.cost(), Truth()) < 0.01);
}

TEST_CASE("noise is averaged") {
  std::mt19937 random(2);
  CostFit fit(Guess());
  for (int i = 0; i < 500; ++i) AddRandomLayer(Truth(), 0.1, random, fit);
  CHECK(WorstError(fit.cost(), Truth()) < 0.15);
}

TEST_CASE("a machine that becomes three times slower is believed") {
  std::mt19937 random(3);
  PrefillCost slow = Truth();
  slow.token *= 3;
  slow.pair *= 3;
  CostFit fit(Guess());
  for (int i = 0; i < 200; ++i) AddRandomLayer(Truth(), 0.05, random, fit);
  for (int i = 0; i < 200; ++i) AddRandomLayer(slow, 0.05, random, fit);
  CHECK(WorstError(fit.cost(), slow) < 0.15);
}

TEST_CASE("a machine that becomes three times faster is believed") {
  std::mt19937 random(4);
  PrefillCost fast = Truth();
  fast.token /= 3;
  fast.pair /= 3;
  CostFit fit(Guess());
  for (int i = 0; i < 200; ++i) AddRandomLayer(Truth(), 0.05, random, fit);
  for (int i = 0; i < 200; ++i) AddRandomLayer(fast, 0.05, random, fit);
  CHECK(WorstError(fit.cost(), fast) < 0.15);
}

TEST_CASE("a time near nothing, as a difference may be, does not outweigh the others") {
  std::mt19937 random(5);
  CostFit fit(Guess());
  for (int i = 0; i < 100; ++i) AddRandomLayer(Truth(), 0.05, random, fit);
  fit.Add(512, CausalPairs(512, 0), Truth().Layer(512, 0) / 100);
  CHECK(WorstError(fit.cost(), Truth()) < 0.1);
  AddRandomLayer(Truth(), 0.05, random, fit);
  CHECK(WorstError(fit.cost(), Truth()) < 0.1);
}

TEST_CASE("layers that are all alike leave nothing unbounded") {
  CostFit fit(Guess());
  for (int i = 0; i < 20000; ++i) fit.Add(512, CausalPairs(512, 0), Truth().Layer(512, 0));
  CHECK(fit.cost().Layer(512, 0) == Approx(Truth().Layer(512, 0)).epsilon(1e-3));
  std::mt19937 random(4);
  for (int i = 0; i < 100; ++i) AddRandomLayer(Truth(), 0, random, fit);
  CHECK(WorstError(fit.cost(), Truth()) < 0.02);
}

// A small model's first steps: chunks of short prompts, their times off by a third and some held up
// by other processes, and nothing that tells attention from linear layers.
TEST_CASE("a few noisy layers are read in the model's proportions") {
  PrefillCost truth = Truth();
  truth.extra_tokens = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    PrefillCost begin = truth;
    begin.token *= 2;  // its first step was held up
    begin.pair *= 2;
    CostFit fit(begin, 0.05);
    for (int i = 0; i < 6; ++i) {
      const double tokens = std::uniform_int_distribution(100, 300)(random);
      const double held_up = i == 2 ? 3 : 1;
      const double noise = std::exp(.15 * std::normal_distribution<double>()(random));
      fit.Add(tokens, CausalPairs(tokens, 0), truth.Layer(tokens, 0) * noise * held_up);
    }
    CHECK(fit.cost().Layer(200, 0) == Approx(truth.Layer(200, 0)).epsilon(.5));
    CHECK(fit.cost().token > truth.token / 2);
    CHECK(fit.cost().pair < 3 * truth.pair);
    CHECK(fit.cost().Layer(512, 8192) == Approx(truth.Layer(512, 8192)).epsilon(.6));
  }
}

TEST_CASE("the proportions of the model give way to what layers show") {
  std::mt19937 random(5);
  PrefillCost begin = Truth();
  begin.pair /= 3;  // attention is computed less well than linear layers
  begin.extra_tokens = 0;
  CostFit fit(begin, 0.05);
  for (int i = 0; i < 100; ++i) AddRandomLayer(Truth(), 0.05, random, fit);
  CHECK(WorstError(fit.cost(), Truth()) < 0.1);
}

TEST_CASE("layers that others held up count for less") {
  std::mt19937 random(6);
  CostFit fit(Guess());
  for (int i = 0; i < 500; ++i) {
    const double tokens = std::uniform_int_distribution(16, 2048)(random);
    const double before = 64.0 * std::uniform_int_distribution(0, 255)(random);
    const double noise = std::exp(.03 * std::normal_distribution<double>()(random));
    const double held_up = i % 10 == 3 ? 4 : 1;
    fit.Add(tokens, Truth().Pairs(tokens, before), Truth().Layer(tokens, before) * noise * held_up);
  }
  CHECK(WorstError(fit.cost(), Truth()) < 0.05);
}

TEST_CASE("nonsense is ignored") {
  CostFit fit(Guess());
  const double infinity = std::numeric_limits<double>::infinity();
  fit.Add(0, 0, 1);
  fit.Add(10, -1, 1);
  fit.Add(10, 0, 0);
  fit.Add(10, 0, -1);
  fit.Add(infinity, 0, 1);
  fit.Add(10, 0, std::nan(""));
  CHECK(fit.cost() == Guess());
}

}  // namespace
}  // namespace baton
