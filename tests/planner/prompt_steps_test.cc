// Prompts cost their tokens and pairs, and each step of their own something more.
#include "planner/prompt_steps.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// A step of 500 tokens is full: 100 ms, of which 20 ms are the step's own. As the worker tells it,
// these are shared out to the tokens.
constexpr double kOfStep = 20e-3, kFull = 100e-3;
constexpr int kFullTokens = 500;
constexpr PrefillCost kCost{
    .n_layers = 2, .token = kFull / kFullTokens / 2, .extra_tokens = kOfStep * kFullTokens / kFull};

PromptSeconds Of(std::initializer_list<int> prompts, double full_step = kFullTokens) {
  PromptSteps steps(kCost, full_step);
  for (const int tokens : prompts) steps.Add(tokens, 0);
  return steps.seconds();
}

// Returns what `tokens` take in so many steps.
double In(int steps, int tokens) {
  return steps * kOfStep + tokens * (kFull - kOfStep) / kFullTokens;
}

TEST_CASE("a prompt has as many steps as it fills, and the last one that it does not fill") {
  CHECK(Of({1}).alone == Approx(In(1, 1)));
  CHECK(Of({100}).alone == Approx(In(1, 100)));
  CHECK(Of({500}).alone == Approx(In(1, 500)));
  CHECK(Of({501}).alone == Approx(In(2, 501)));
  CHECK(Of({1000}).alone == Approx(In(2, 1000)));
  CHECK(Of({}).alone == 0);
}

TEST_CASE("beside rows no step is its own") {
  CHECK(Of({1}).work == Approx(kFull / kFullTokens));
  CHECK(Of({500}).work == Approx(kFull));
}

TEST_CASE("prompts of few tokens share steps, others do not") {
  CHECK(Of({4, 20, 40}).alone == Approx(In(1, 64)));
  CHECK(Of({4, 20, 41}).alone == Approx(In(2, 65)));
  CHECK(Of({100, 100}).alone == Approx(In(2, 200)));
  CHECK(Of({4, 20, 100, 501}).alone == Approx(In(4, 625)));
}

TEST_CASE("a longer prompt fills up steps that have few tokens") {
  const auto filled = [](std::initializer_list<int> prompts, int64_t filler, double pairs = 0) {
    PrefillCost cost = kCost;
    cost.pair = 1e-6;
    PromptSteps steps(cost, kFullTokens);
    for (const int tokens : prompts) steps.Add(tokens, 0);
    steps.FillFrom(filler, pairs);
    return steps.seconds().alone;
  };
  CHECK(filled({20}, 1000) == Approx(In(1, 64) + 44 * kOfStep / kFullTokens));
  CHECK(filled({20}, 10) == Approx(In(1, 30) + 10 * kOfStep / kFullTokens));
  CHECK(filled({4, 20, 41}, 1000) == Approx(In(2, 128) + 63 * kOfStep / kFullTokens));
  CHECK(filled({550}, 1000) == Approx(In(2, 564) + 14 * kOfStep / kFullTokens));
  CHECK(filled({100}, 1000) == Approx(In(1, 100)));
  CHECK(filled({20}, 1000, 300) == Approx(filled({20}, 1000) + 44 * 300 * 2e-6));
}

TEST_CASE("where full steps are unknown a prompt has one step more than its tokens make up") {
  CHECK(Of({500}, 0).alone == Approx(kFull + kOfStep));
  CHECK(Of({500, 100}, 0).alone == Approx(1.2 * kFull + 2 * kOfStep));
}

}  // namespace
}  // namespace baton
