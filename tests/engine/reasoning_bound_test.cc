#include "engine/sampling/reasoning_bound.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "engine/sampling/sampler.h"

namespace baton {
namespace {

using Tokens = std::vector<int32_t>;

// Returns what a model that wants to write `wanted` generates under the budget.
Tokens Generated(const ReasoningBudget& budget, const Tokens& wanted) {
  ReasoningBound bound(budget);
  Tokens generated;
  for (const int32_t token : wanted) {
    generated.push_back(bound.forced().value_or(token));
    bound.Push(generated.back());
  }
  return generated;
}

// The rule as the header has it, from the whole list of tokens.
std::optional<int32_t> Forced(const ReasoningBudget& budget, const Tokens& generated) {
  const auto is_at = [&](const Tokens& part, size_t at) {
    return at + part.size() <= generated.size() &&
           std::equal(part.begin(), part.end(), generated.begin() + static_cast<ptrdiff_t>(at));
  };
  if (budget.end.empty()) return std::nullopt;
  std::optional<size_t> inside;
  if (budget.begin.empty()) inside = 0;
  for (size_t at = 0; at <= 2 && !inside; ++at)
    if (is_at(budget.begin, at)) inside = at + budget.begin.size();
  if (!inside) return std::nullopt;
  for (size_t at = *inside; at < generated.size(); ++at)
    if (is_at(budget.end, at)) return std::nullopt;
  if (generated.size() < *inside + static_cast<size_t>(budget.max_tokens)) return std::nullopt;
  for (size_t n = std::min(budget.end.size() - 1, generated.size() - *inside); n > 0; --n) {
    const Tokens part(budget.end.begin(), budget.end.begin() + static_cast<ptrdiff_t>(n));
    if (is_at(part, generated.size() - n)) return budget.end[n];
  }
  return budget.end.front();
}

}  // namespace

TEST_CASE("the end marker follows when the budget is used up") {
  const ReasoningBudget one{.max_tokens = 3, .end = {9}};
  CHECK(Generated(one, {1, 2, 3, 4, 5, 6}) == Tokens{1, 2, 3, 9, 5, 6});
  CHECK(Generated(one, {1, 9, 3, 4, 5, 6}) == Tokens{1, 9, 3, 4, 5, 6});  // it ended by itself
  CHECK(Generated({.max_tokens = 0, .end = {9}}, {1, 2, 3}) == Tokens{9, 2, 3});
  CHECK(Generated({}, {1, 2, 3}) == Tokens{1, 2, 3});
}

TEST_CASE("an end marker of several tokens goes on where it was begun") {
  const ReasoningBudget budget{.max_tokens = 3, .end = {7, 8, 9}};
  CHECK(Generated(budget, {1, 2, 3, 4, 5, 6, 1}) == Tokens{1, 2, 3, 7, 8, 9, 1});
  CHECK(Generated(budget, {1, 7, 8, 4, 5}) == Tokens{1, 7, 8, 9, 5});
  CHECK(Generated(budget, {7, 8, 7, 4, 5, 6}) == Tokens{7, 8, 7, 8, 9, 6});
  CHECK(Generated(budget, {7, 8, 9, 7, 5, 6}) == Tokens{7, 8, 9, 7, 5, 6});
}

TEST_CASE("tokens are counted from the begin marker on, if the answer opens with it") {
  const ReasoningBudget budget{.max_tokens = 2, .begin = {4}, .end = {9}};
  CHECK(Generated(budget, {4, 1, 2, 3, 3}) == Tokens{4, 1, 2, 9, 3});
  CHECK(Generated(budget, {1, 4, 1, 2, 3}) == Tokens{1, 4, 1, 2, 9});
  CHECK(Generated(budget, {1, 1, 1, 4, 2, 3, 5, 6}) == Tokens{1, 1, 1, 4, 2, 3, 5, 6});
}

TEST_CASE("the forced token is a function of the tokens so far") {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto tokens = [&](int n) {
    Tokens list;
    for (int i = 0; i < n; ++i) list.push_back(below(3));
    return list;
  };
  int forced = 0;
  for (int round = 0; round < 20'000; ++round) {
    const ReasoningBudget budget{
        .max_tokens = below(8), .begin = tokens(below(3)), .end = tokens(1 + below(4))};
    const Tokens generated = tokens(below(16));
    ReasoningBound bound(budget);
    for (const int32_t token : generated) bound.Push(token);
    REQUIRE(bound.forced() == Forced(budget, generated));
    forced += bound.forced().has_value();
  }
  CHECK(forced > 1000);
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
                                .reasoning = {.max_tokens = 1, .end = {token}}};
    const std::vector<int32_t> stops = {token}, history = {1, 1};
    const SequenceSampling first(params, stops, std::span(history).first(1), 0);
    const SequenceSampling next(params, stops, history, 1);
    Sampler sampler;
    CHECK(sampler.Sample(logits, first, 1).token == 1);
    CHECK(sampler.Sample(logits, next, 2).token == token);
  }
}

TEST_CASE("a marker beyond the vocabulary forces nothing") {
  const SamplingParams params{.temperature = 0, .reasoning = {.end = {99}}};
  Sampler sampler;
  const std::vector<float> logits = {1, 9, 2};
  CHECK(sampler.Sample(logits, params, 1).token == 1);
}

}  // namespace baton
