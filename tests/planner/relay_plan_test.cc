// The choice of a relay's plan: right in clear cases, and never worse than one worker by its own
// predictions.

#include "planner/relay_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

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

std::vector<OfferedWorker> Idle(int n, const ChainLink& link = kFast) {
  std::vector<OfferedWorker> workers(static_cast<size_t>(n));
  for (size_t i = 0; i < workers.size(); ++i) workers[i] = {.place = i, .link = link};
  return workers;
}

// The ranks in the order of their first slices.
std::vector<int> RanksOf(const RelayPlan& plan) {
  std::vector<int> ranks;
  for (const RelaySlice& slice : plan.slices)
    if (std::find(ranks.begin(), ranks.end(), slice.worker) == ranks.end())
      ranks.push_back(slice.worker);
  return ranks;
}

std::vector<int> TokensOf(const RelayPlan& plan) {
  std::vector<int> tokens;
  for (int before = 0; const RelaySlice& slice : plan.slices)
    tokens.push_back(slice.end - std::exchange(before, slice.end));
  return tokens;
}

size_t Ranks(int tokens, const std::vector<OfferedWorker>& offered, double waiting = 0) {
  return RanksOf(PlanRelay(Cost(), PlanRecord(), offered,
                           {.tokens = tokens, .rules = {.max_ranks = 8}, .waiting = waiting}))
      .size();
}

TEST_CASE("long prompts are shared by all idle workers, short ones by none") {
  CHECK(Ranks(4096, Idle(1)) == 1);
  CHECK(Ranks(4096, Idle(2)) == 2);
  CHECK(Ranks(32768, Idle(8)) == 8);
  CHECK(Ranks(100, Idle(8)) == 1);  // one page and a bit: a second rank would get only a page
  CHECK(Ranks(63, Idle(8)) == 1);
}

TEST_CASE("a slow link: fewer ranks, then one") {
  const size_t fast = Ranks(8192, Idle(8, {1e9, 1e-4}));
  const size_t slow = Ranks(8192, Idle(8, {2e6, 1e-4}));
  CHECK(fast == 8);
  CHECK(slow < fast);
  CHECK(Ranks(8192, Idle(8, {1e4, 1e-4})) == 1);
}

TEST_CASE("the link of the last rank carries nothing of the chain") {
  std::vector<OfferedWorker> offered = Idle(2);
  offered[1].link = {1e4, 1e-4};
  CHECK(Ranks(8192, offered) == 2);
  std::swap(offered[0].link, offered[1].link);
  CHECK(Ranks(8192, offered) == 1);
}

TEST_CASE("a slow link between two ranks that do not hand over to each other is not met") {
  std::vector<OfferedWorker> offered = Idle(3);
  const ChainLink slow{1e4, 1e-4};
  offered[0].link_to = [&](int to) { return to == 2 ? slow : kFast; };
  const auto ranks = [&] {
    return RanksOf(PlanRelay(Cost(), PlanRecord(), offered,
                             {.tokens = 8192, .rules = {.min_ranks = 3, .max_ranks = 3}}))
        .size();
  };
  CHECK(ranks() == 3);
  offered[1].link_to = offered[0].link_to;
  CHECK(ranks() == 1);
}

TEST_CASE("no rank gets a slice longer than it takes") {
  std::vector<OfferedWorker> offered = Idle(4);
  for (OfferedWorker& worker : offered) worker.max_slice_tokens = 3000;
  const auto slices = [&](int tokens, int max_ranks) {
    return TokensOf(PlanRelay(Cost(), PlanRecord(), offered,
                              {.tokens = tokens, .rules = {.max_ranks = max_ranks}}));
  };
  CHECK(slices(4096, 2).size() == 2);
  CHECK(slices(8192, 4).size() == 4);
  // Rounds, with as few ranks as possible.
  const std::vector<int> rounds = slices(8192, 2);
  REQUIRE(rounds.size() == 4);
  CHECK(*std::max_element(rounds.begin(), rounds.end()) <= 3000);
  CHECK(std::accumulate(rounds.begin(), rounds.end(), 0) == 8192);
}

TEST_CASE("32,768 tokens on two workers that take slices of 8,192: rounds of equal work") {
  std::vector<OfferedWorker> offered = Idle(2);
  for (OfferedWorker& worker : offered) worker.max_slice_tokens = 8192;
  const RelayPlanRequest request{.tokens = 32768, .rules = {.max_ranks = 2}};
  const RelayPlan relay_plan = PlanRelay(Cost(), PlanRecord(), offered, request);
  REQUIRE(RanksOf(relay_plan) == std::vector<int>{0, 1});
  REQUIRE(relay_plan.slices.size() == 8);  // the first of six would have 10,000 tokens
  CHECK(relay_plan.slices.back().end == 32768);
  double before = 0;
  std::vector<double> works;
  for (const int tokens : TokensOf(relay_plan)) {
    CHECK(tokens <= 8192);
    CHECK(tokens % 64 == 0);
    works.push_back(Cost().Layer(tokens, before));
    before += tokens;
  }
  for (const double work : works) CHECK(work == Approx(works[0]).epsilon(.05));
  CHECK(relay_plan.seconds < .52 * relay_plan.alone);
  // One round is used where one is enough.
  for (OfferedWorker& worker : offered) worker.max_slice_tokens = 32768;
  CHECK(PlanRelay(Cost(), PlanRecord(), offered, request).slices.size() == 2);
}

TEST_CASE("attention is nearly all of the work: rounds of equal tokens where slices are bounded") {
  PrefillCost cost = Cost();
  cost.token = 1e-9;
  std::vector<OfferedWorker> offered = Idle(4);
  for (OfferedWorker& worker : offered) worker.max_slice_tokens = 256;
  const RelayPlan plan = PlanRelay(cost, PlanRecord(), offered,
                                   {.tokens = 2048, .rules = {.min_ranks = 3, .max_ranks = 3}});
  CHECK(RanksOf(plan).size() == 3);
  const std::vector<int> tokens = TokensOf(plan);
  CHECK(*std::max_element(tokens.begin(), tokens.end()) <= 256);
  CHECK(plan.slices.back().end == 2048);
}

TEST_CASE("more rounds than slices need, where that is sooner: masked keys cost time too") {
  PrefillCost cost = Cost();
  cost.kernel = PairKernel::kDenseMask;
  const auto n_slices = [&cost](int tokens) {
    return PlanRelay(cost, PlanRecord(), Idle(2), {.tokens = tokens, .rules = {.max_ranks = 2}})
        .slices.size();
  };
  CHECK(n_slices(32768) > 2);
  CHECK(n_slices(1024) == 2);
}

TEST_CASE("in rounds the last rank hands on to the first, over a link that counts") {
  std::vector<OfferedWorker> offered = Idle(2);
  for (OfferedWorker& worker : offered) worker.max_slice_tokens = 3000;
  offered[1].link = {1e4, 1e-4};
  CHECK(Ranks(4096, offered) == 2);
  CHECK(Ranks(8192, offered) == 1);
  offered[1].link = kFast;
  CHECK(Ranks(8192, offered) == 2);
}

TEST_CASE("no prompt waits for ranks that are busy") {
  std::vector<OfferedWorker> offered = Idle(2);
  offered[1].seconds = offered[1].slice_seconds = 1000;
  const auto choose = [&](const RelayPlanRequest& request) {
    return RanksOf(PlanRelay(Cost(), PlanRecord(), offered, request));
  };
  CHECK(choose({.tokens = 4096, .rules = {.max_ranks = 2}}) == std::vector<int>{0});
  std::swap(offered[0], offered[1]);
  CHECK(choose({.tokens = 4096, .rules = {.max_ranks = 2}}) == std::vector<int>{1});
}

TEST_CASE(
    "ranks: the soonest, as many as are allowed, in their places, the one that must be there") {
  std::vector<OfferedWorker> offered = Idle(4);
  const std::vector<double> seconds = {.3, 0, .2, .1};
  for (size_t i = 0; i < 4; ++i) offered[i] = {1, seconds[i], seconds[i], 0, 10 - i, kFast};
  const auto choose = [&](const RelayPlanRequest& request) {
    return RanksOf(PlanRelay(Cost(), PlanRecord(), offered, request));
  };
  CHECK(choose({.tokens = 8192, .rules = {.max_ranks = 2}}) == std::vector<int>{3, 1});
  CHECK(choose({.tokens = 8192, .rules = {.max_ranks = 3}}) == std::vector<int>{3, 2, 1});
  CHECK(choose({.tokens = 8192, .rules = {.max_ranks = 2}, .must = 0}) == std::vector<int>{1, 0});
  CHECK(choose({.tokens = 8192, .rules = {.max_ranks = 1}}) == std::vector<int>{1});
  CHECK(choose({.tokens = 8192, .rules = {.max_ranks = 9}}) == std::vector<int>{3, 2, 1, 0});
}

TEST_CASE("a slice may have to wait where a prompt need not, and need not where a prompt has to") {
  const auto ranks = [](double seconds, double slice_seconds) {
    std::vector<OfferedWorker> offered = Idle(2);
    for (OfferedWorker& worker : offered) {
      worker.seconds = seconds;
      worker.slice_seconds = slice_seconds;
    }
    return RanksOf(
               PlanRelay(Cost(), PlanRecord(), offered, {.tokens = 512, .rules = {.max_ranks = 2}}))
        .size();
  };
  CHECK(ranks(0, 0) == 2);
  CHECK(ranks(0, 100) == 1);
  CHECK(ranks(100, 100) == 2);
  CHECK(ranks(100, 0) == 2);
}

TEST_CASE("what a relay makes others wait counts, as far as one worker would not") {
  const auto ranks = [](int passed, int passed_by_helper) {
    std::vector<OfferedWorker> offered = Idle(2);
    offered[0].passed = passed;
    offered[1].passed = passed_by_helper;
    return RanksOf(PlanRelay(Cost(), PlanRecord(), offered,
                             {.tokens = 4096, .rules = {.max_ranks = 2}, .must = 0}))
        .size();
  };
  CHECK(ranks(0, 0) == 2);
  CHECK(ranks(1, 1) == 2);  // each prompt waits half as long
  CHECK(ranks(0, 3) == 1);
}

TEST_CASE("where prompts wait, the work a relay costs in all counts") {
  CHECK(Ranks(256, Idle(4), 0) > 1);
  CHECK(Ranks(256, Idle(4), 100) == 1);
}

TEST_CASE("so many ranks are taken whatever is predicted, where they are there") {
  const auto ranks = [](int tokens, int offered, int min) {
    return RanksOf(
               PlanRelay(
                   Cost(), PlanRecord(), Idle(offered),
                   {.tokens = tokens, .rules = {.min_ranks = min, .max_ranks = 4}, .waiting = 1e4}))
        .size();
  };
  CHECK(ranks(8192, 4, 1) == 1);
  CHECK(ranks(8192, 4, 2) == 2);
  CHECK(ranks(8192, 4, 3) >= 3);
  CHECK(ranks(8192, 2, 3) == 1);
  CHECK(ranks(100, 4, 2) == 1);
}

TEST_CASE(
    "a kind of relay that was slower than one worker is not chosen, until that is forgotten") {
  PlanRecord record;
  const auto ranks = [&] {
    return RanksOf(PlanRelay(Cost(), record, Idle(2), {.tokens = 4096, .rules = {.max_ranks = 2}}))
        .size();
  };
  CHECK(ranks() == 2);
  for (int i = 0; i < 4; ++i) record.Add(4096, 2, 3);
  CHECK(ranks() == 1);
  for (int i = 0; i < 50; ++i) record.Add(4096, 1, 1);
  CHECK(ranks() == 2);
  // Where all are late, relays are not to blame.
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 3);
  CHECK(ranks() == 1);
  for (int i = 0; i < 50; ++i) {
    record.Add(4096, 1, 3);
    record.Add(4096, 2, 3);
  }
  CHECK(ranks() == 2);
}

TEST_CASE("workers on the same CPUs are no faster together than these") {
  const auto ranks = [](const std::vector<uint64_t>& groups, double share) {
    std::vector<OfferedWorker> offered = Idle(static_cast<int>(groups.size()));
    for (size_t i = 0; i < groups.size(); ++i) {
      offered[i].cpu_group = groups[i];
      offered[i].cpu_share = share;
    }
    return RanksOf(
        PlanRelay(Cost(), PlanRecord(), offered, {.tokens = 8192, .rules = {.max_ranks = 8}}));
  };
  using Ranks = std::vector<int>;
  CHECK(ranks({7, 7}, 1).size() == 1);
  CHECK(ranks({7, 7, 7}, 1).size() == 1);
  CHECK(ranks({7, 7}, .5) == Ranks{0, 1});
  CHECK(ranks({7, 7, 7}, 1. / 3) == Ranks{0, 1, 2});
  CHECK(ranks({7, 8}, 1) == Ranks{0, 1});
  CHECK(ranks({0, 0}, 1) == Ranks{0, 1});  // unknown
  CHECK(ranks({7, 7, 8, 8}, 1) == Ranks{0, 2});
}

TEST_CASE("what the first rank has of the prompt is not shared, but handed on") {
  std::vector<OfferedWorker> offered = Idle(2);
  const auto choose = [&](int must) {
    return PlanRelay(Cost(), PlanRecord(), offered,
                     {.tokens = 6144, .rules = {.max_ranks = 2}, .must = must});
  };
  const RelayPlan whole = choose(0);
  offered[0].cached = 2048;
  offered[0].alone_seconds = Cost().Alone(4096, 2048);
  const RelayPlan rest = choose(0);
  REQUIRE(rest.slices.size() == 2);
  const int end = rest.slices[0].end;
  CHECK(rest.slices == std::vector<RelaySlice>{{0, end}, {1, 6144}});
  const double first = Cost().Layer(end - 2048, 2048);
  CHECK(first == Approx(Cost().Layer(6144 - end, end)).epsilon(.05));
  CHECK(rest.seconds == Approx(Cost().n_layers * first).epsilon(.05));
  CHECK(rest.seconds < .8 * whole.seconds);
  // The link of the chain still carries the KV.
  const auto link_of = [&](int tokens) {  // a link with 90 % to do
    return ChainLink{tokens * Cost().kv_bytes / (.9 * first), 1e-4};
  };
  offered[0].link = link_of(end);
  CHECK(choose(0).slices == rest.slices);
  offered[0].link = link_of(end - 2048);
  CHECK(choose(0).slices[0].end < end);

  // A rank hands nothing to a rank before it, and the plan counts on no more than the rank could
  // compute itself.
  std::swap(offered[0].cached, offered[1].cached);
  offered[0].link = kFast;
  offered[0].alone_seconds = 0;
  CHECK(choose(1).slices == whole.slices);
  offered = Idle(2);
  offered[0].cached = 2048;
  offered[0].max_slice_tokens = 4000;
  CHECK(choose(0).slices == whole.slices);
}

TEST_CASE("who has the beginning is first, though others could begin sooner") {
  std::vector<OfferedWorker> offered = Idle(3);
  offered[0].slice_seconds = 0;
  offered[1].cached = 4096;
  offered[1].alone_seconds = Cost().Alone(4096, 4096);
  offered[2].slice_seconds = .01;
  const RelayPlan relay_plan = PlanRelay(Cost(), PlanRecord(), offered,
                                         {.tokens = 8192, .rules = {.max_ranks = 2}, .must = 1});
  CHECK(RanksOf(relay_plan) == std::vector<int>{1, 2});
  CHECK(relay_plan.slices.front().end > 4096);
}

TEST_CASE("whatever is offered: slices add up, and the prediction is not above one worker's") {
  std::mt19937 random(5);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  size_t max = 0, in_rounds = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<OfferedWorker> offered = Idle(1 + static_cast<int>(random() % 8));
    for (OfferedWorker& worker : offered) {
      worker = {.speed = between(.25, 2),
                .seconds = between(1e-3, 1),
                .slice_seconds = between(1e-3, 1),
                .passed = static_cast<int>(random() % 3),
                .place = random(),
                .link = {between(1e5, 1e10), 1e-4}};
      worker.max_slice_tokens = static_cast<int>(between(1e3, 1e6));
    }
    RelayPlanRequest request{.tokens = static_cast<int>(between(1, 1e5)),
                             .prefix = 64 * static_cast<int>(random() % 100),
                             .rules = {.max_ranks = 8},
                             .waiting = between(1e-3, 10)};
    if (random() % 2 == 0) request.must = static_cast<int>(random() % offered.size());
    for (OfferedWorker& worker : offered)
      worker.cached =
          64 * static_cast<int>(random() % static_cast<size_t>(request.tokens / 64 + 1));
    const RelayPlan relay_plan = PlanRelay(Cost(), PlanRecord(), offered, request);
    const std::vector<int> ranks = RanksOf(relay_plan), tokens = TokensOf(relay_plan);
    CHECK(relay_plan.slices.back().end == request.tokens);
    CHECK(tokens.size() % ranks.size() == 0);
    in_rounds += tokens.size() > ranks.size();
    for (size_t i = 1; i < ranks.size(); ++i) {
      CHECK(offered[static_cast<size_t>(ranks[i - 1])].place <
            offered[static_cast<size_t>(ranks[i])].place);
    }
    for (size_t i = 0; i < tokens.size() && ranks.size() > 1; ++i) {
      CHECK(relay_plan.slices[i].worker == ranks[i % ranks.size()]);
      CHECK(tokens[i] > 0);
      CHECK(tokens[i] <=
            offered[static_cast<size_t>(relay_plan.slices[i].worker)].max_slice_tokens);
    }
    CHECK(relay_plan.seconds <= relay_plan.alone);
    max = std::max(max, ranks.size());
  }
  CHECK(max >= 4);
  CHECK(in_rounds >= 20);
}

}  // namespace
}  // namespace baton
