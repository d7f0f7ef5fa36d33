#include "router/policy.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

namespace baton {
namespace {

constexpr AttemptShape kShape{.n_prompt = 100, .max_tokens = 20};
constexpr AttemptShape kOneToken{.n_prompt = 100, .max_tokens = 1};

Candidate Worker(Incarnation id, Role role, double prefill_ms, double decode_ms,
                 uint64_t last_chosen = 0) {
  return {.worker = id,
          .role = role,
          .fits_prefill = true,
          .fits_decode = true,
          .prefill_ms = prefill_ms,
          .decode_ms = decode_ms,
          .last_chosen = last_chosen};
}

std::pair<Incarnation, Incarnation> Pair(const std::vector<Candidate>& candidates,
                                         const AttemptShape& shape = kShape) {
  const std::optional<Plan> plan = ChoosePlan(candidates, shape);
  REQUIRE(plan.has_value());
  return {plan->prefill, plan->decode};
}

using Ids = std::pair<Incarnation, Incarnation>;

}  // namespace

TEST_CASE("the least predicted prefill wait and decode wait are chosen") {
  CHECK(Pair({Worker(1, Role::kPrefill, 300, 10), Worker(2, Role::kPrefill, 200, 10),
              Worker(3, Role::kDecode, 1, 50), Worker(4, Role::kDecode, 1, 40)}) == Ids(2, 4));
}

TEST_CASE("ties go to the least recently chosen, then to the smaller id") {
  const auto prefill = [](uint64_t chosen_1, uint64_t chosen_2) {
    return Pair({Worker(1, Role::kPrefill, 200, 0, chosen_1),
                 Worker(2, Role::kPrefill, 201, 0, chosen_2), Worker(3, Role::kDecode, 0, 10)})
        .first;
  };
  CHECK(prefill(5, 4) == 2);  // 201 is within 2 %
  CHECK(prefill(4, 5) == 1);
  CHECK(prefill(0, 0) == 1);
}

TEST_CASE("a worker of both roles decodes what it prefilled") {
  CHECK(Pair({Worker(1, Role::kBoth, 300, 10), Worker(2, Role::kBoth, 100, 90)}) == Ids(2, 2));
  // It is not mixed with another, even where that would look cheaper.
  CHECK(Pair({Worker(1, Role::kBoth, 300, 10), Worker(2, Role::kBoth, 100, 300)}) == Ids(1, 1));
}

TEST_CASE("a mixed cluster takes the cheaper of pair and local") {
  const Candidate prefill = Worker(1, Role::kPrefill, 100, 10);
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 400, 20)}) == Ids(1, 2));
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 50, 20)}) == Ids(2, 2));
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 400, 200), Worker(3, Role::kDecode, 0, 30)}) ==
        Ids(1, 3));
}

TEST_CASE("roles are preferences") {
  CHECK(Pair({Worker(1, Role::kPrefill, 30, 10), Worker(2, Role::kPrefill, 10, 10)}) == Ids(2, 2));
  CHECK(Pair({Worker(1, Role::kDecode, 30, 10), Worker(2, Role::kDecode, 30, 90)}) == Ids(1, 1));
  CHECK(Pair({Worker(1, Role::kDecode, 30, 10)}, kOneToken) == Ids(1, 0));
}

TEST_CASE("one token needs no decode worker") {
  CHECK(Pair({Worker(1, Role::kPrefill, 30, 10), Worker(2, Role::kDecode, 1, 1),
              Worker(3, Role::kBoth, 20, 10)},
             kOneToken) == Ids(3, 0));
}

TEST_CASE("a worker that can never hold the request is not chosen") {
  Candidate small = Worker(1, Role::kDecode, 1, 1);
  small.fits_decode = false;
  const Candidate prefill = Worker(2, Role::kPrefill, 10, 10);
  CHECK(Pair({small, prefill, Worker(3, Role::kDecode, 1, 99)}) == Ids(2, 3));
  CHECK(Pair({small, prefill}) == Ids(2, 2));  // the prefill worker serves alone
  CHECK_FALSE(ChoosePlan(std::vector<Candidate>{small}, kShape).has_value());
  CHECK_FALSE(ChoosePlan({}, kShape).has_value());
}

TEST_CASE("the order of the candidates does not matter") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 2000; ++run) {
    std::vector<Candidate> candidates;
    for (Incarnation id = 1; id <= 6; ++id)
      candidates.push_back(Worker(id, static_cast<Role>(random() % 3),
                                  static_cast<double>(random() % 4) * 50,
                                  static_cast<double>(random() % 4) * 50, random() % 3));
    const std::optional<Plan> plan = ChoosePlan(candidates, kShape);
    std::shuffle(candidates.begin(), candidates.end(), random);
    REQUIRE(ChoosePlan(candidates, kShape) == plan);
  }
}

TEST_CASE("prefill time") {
  CHECK(PrefillMs(0, 100, 1000) == Approx(100));
  CHECK(PrefillMs(400, 100, 1000) == Approx(500));
  CHECK(PrefillMs(400, 100, 2000) == Approx(250));
}

TEST_CASE("the wait for room follows the holdings that end first") {
  const std::vector<Holding> holdings = {{.pages = 4, .tokens_left = 50},
                                         {.pages = 2, .tokens_left = 10}};
  const auto wait = [&](int64_t pages_free, int32_t rows, int32_t max_batch, int32_t pages) {
    return RoomWaitMs(
        {.pages_free = pages_free, .rows = rows, .max_batch = max_batch, .step_ms = 3}, holdings,
        pages);
  };
  CHECK(wait(5, 2, 4, 5) == 0);
  CHECK(wait(3, 2, 4, 5) == Approx(30));   // two pages come after 10 tokens
  CHECK(wait(0, 2, 4, 5) == Approx(150));  // six after 50
  CHECK(wait(5, 2, 2, 5) == Approx(30));   // pages, but no row
  CHECK(wait(0, 2, 4, 99) == Approx(150));
}

TEST_CASE("more rows, slower steps and longer waits are never cheaper") {
  const auto cost = [](int32_t rows, double step_ms, double wait_ms) {
    return DecodeMs({.pages_free = 1, .rows = rows, .max_batch = 8, .step_ms = step_ms}, wait_ms);
  };
  CHECK(cost(1, 10, 0) < cost(2, 10, 0));
  CHECK(cost(2, 10, 0) < cost(2, 11, 0));
  CHECK(cost(2, 11, 0) < cost(2, 11, 1));
}

TEST_CASE("pages of an attempt") {
  CHECK(PromptPages({.n_prompt = 64, .max_tokens = 1}, 64) == 1);
  CHECK(PromptPages({.n_prompt = 65, .max_tokens = 1}, 64) == 2);
  CHECK(PromisePages({.n_prompt = 64, .max_tokens = 1}, 64) == 1);
  CHECK(PromisePages({.n_prompt = 64, .max_tokens = 2}, 64) == 2);
  CHECK(PromisePages({.n_prompt = 64, .max_tokens = 200}, 64) == 2);
  CHECK(PromisePages({.n_prompt = 64, .max_tokens = 200, .covered = true}, 64) == 5);
  CHECK(HeldPages({.n_prompt = 64, .max_tokens = 200}, 1, 64) == 2);
  CHECK(HeldPages({.n_prompt = 64, .max_tokens = 200}, 70, 64) == 3);
  CHECK(WholePages({.n_prompt = 1 << 30, .max_tokens = 1 << 30}, 16) == 1 << 27);
}

}  // namespace baton
