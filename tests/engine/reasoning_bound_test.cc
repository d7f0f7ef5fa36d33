#include "engine/sampling/reasoning_bound.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "engine/sampling/sampler.h"

namespace baton {
namespace {

using Tokens = std::vector<int32_t>;

// Returns what a model that wants to write `wanted` generates under the budget.
Tokens Generated(const ReasoningBudget& budget, const Tokens& wanted) {
  ReasoningBound bound(budget);
  Tokens generated;
  for (const int32_t token : wanted) {
    generated.push_back(bound.must_end() ? budget.end : token);
    bound.Push(generated.back());
  }
  return generated;
}

}  // namespace

TEST_CASE("the end of reasoning follows when the budget is used up") {
  const ReasoningBudget three{.max_tokens = 3, .end = 9};
  CHECK(Generated(three, {1, 2, 3, 4, 5, 6}) == Tokens{1, 2, 3, 9, 5, 6});
  CHECK(Generated(three, {1, 9, 3, 4, 5, 6}) == Tokens{1, 9, 3, 4, 5, 6});  // it ended by itself
  CHECK(Generated({.max_tokens = 0, .end = 9}, {1, 2, 3}) == Tokens{9, 2, 3});
  CHECK(Generated({}, {1, 2, 3}) == Tokens{1, 2, 3});
}

TEST_CASE("tokens are counted behind the one that opens reasoning, if the answer begins with it") {
  const ReasoningBudget budget{.max_tokens = 2, .begin = 4, .end = 9};
  CHECK(Generated(budget, {4, 1, 2, 3, 3}) == Tokens{4, 1, 2, 9, 3});
  CHECK(Generated(budget, {4, 4, 4, 4, 4}) == Tokens{4, 4, 4, 9, 4});
  CHECK(Generated(budget, {4, 9, 2, 3, 5}) == Tokens{4, 9, 2, 3, 5});
  CHECK(Generated(budget, {1, 4, 1, 2, 3}) == Tokens{1, 4, 1, 2, 3});  // no reasoning
  CHECK(Generated({.begin = 4, .end = 9}, {4, 1, 2}) == Tokens{4, 9, 2});
}

TEST_CASE("a forced token is drawn whatever the logits and the other parameters say") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 9, -kInfinity, 3, std::nanf("")};
  for (const int32_t token : {0, 2, 4}) {
    const SamplingParams params{.temperature = 1,
                                .top_k = 1,
                                .top_p = 0.5f,
                                .min_p = 0.9f,
                                .repetition_penalty = 2,
                                .min_tokens = 50,
                                .logit_bias = {{token, -kInfinity}},
                                .allowed_tokens = {1},
                                .bad_words = {{token}},
                                .reasoning = {.max_tokens = 1, .end = token}};
    const std::vector<int32_t> stops = {token}, history = {1, 1};
    const SequenceSampling first(params, stops, std::span(history).first(1), 0);
    const SequenceSampling next(params, stops, history, 1);
    Sampler sampler;
    CHECK(sampler.Sample(logits, first, 1).token == 1);
    CHECK(sampler.Sample(logits, next, 2).token == token);
  }
}

TEST_CASE("a marker beyond the vocabulary forces nothing") {
  const SamplingParams params{.temperature = 0, .reasoning = {.end = 99}};
  Sampler sampler;
  const std::vector<float> logits = {1, 9, 2};
  CHECK(sampler.Sample(logits, params, 1).token == 1);
}

}  // namespace baton
