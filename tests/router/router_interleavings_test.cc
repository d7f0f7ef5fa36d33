// The router under random schedules and faults: each request ends once, with a prefix of its true
// tokens (all of them unless it was cancelled or failed), and nothing is left at the workers.
#include <catch2/catch.hpp>

#include "tests/router/fake_cluster.h"

namespace baton {
namespace {

GenerateRequest RandomRequest(std::mt19937_64& random) {
  GenerateRequest request;
  for (uint64_t n = 1 + random() % 40; n > 0; --n)
    request.prompt.push_back(static_cast<int32_t>(random() % 50));
  request.max_tokens = static_cast<int32_t>(1 + random() % 12);
  request.sampling.seed = random();
  if (random() % 2 == 0) request.stop_tokens = {static_cast<int32_t>(random() % 50), 7};
  return request;
}

struct Sums {
  size_t complete = 0, cancelled = 0, failed = 0;
  int attempts = 0, preemptions = 0;
  uint64_t relays = 0;
};

Sums RunSeeds(int n_seeds, int n_requests, FaultRates faults, RouterOptions options,
              const std::vector<Role>& roles) {
  Sums sums;
  for (int seed = 0; seed < n_seeds; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FakeCluster cluster(random(), faults, options);
    for (const Role role : roles) cluster.Join(role);
    for (int i = 0; i < n_requests; ++i) cluster.Submit(RandomRequest(random));
    cluster.Run();
    sums.complete += cluster.n_ended(EndReason::kLength) + cluster.n_ended(EndReason::kStopToken);
    sums.cancelled += cluster.n_ended(EndReason::kCancelled);
    sums.failed += cluster.n_ended(EndReason::kFailed);
    sums.attempts += cluster.attempts();
    sums.preemptions += cluster.preemptions();
    sums.relays += cluster.relays();
  }
  return sums;
}

constexpr Role kP = Role::kPrefill, kD = Role::kDecode, kB = Role::kBoth;

}  // namespace

TEST_CASE("any order of events: every request is complete in one attempt") {
  for (const auto& roles :
       {std::vector{kP, kP, kD}, std::vector{kB, kB}, std::vector{kP, kB, kD}}) {
    const Sums sums = RunSeeds(300, 12, {}, {}, roles);
    CHECK(sums.complete == 3600);
    CHECK(sums.attempts == 3600);
  }
}

TEST_CASE("workers lost and joining at any moment: every request is complete") {
  const Sums sums =
      RunSeeds(600, 12, {.lose_worker = 8, .join_worker = 8, .spare_last_worker = true},
               {.max_attempts = 1000}, {kP, kP, kD, kD, kB});
  CHECK(sums.complete == 7200);
  CHECK(sums.attempts > 8500);
}

TEST_CASE("failed parts and full workers: complete while attempts last") {
  const Sums sums = RunSeeds(600, 12, {.fail_part = 20, .no_room = 300},
                             {.max_attempts = 1000, .max_lost_attempts = 1000}, {kP, kP, kD, kD});
  CHECK(sums.complete == 7200);
  CHECK(sums.attempts > 9000);
}

TEST_CASE("preempted rows: every request is complete, and none counts as a failure") {
  const Sums sums = RunSeeds(300, 12, {.preempt = 100}, {.max_attempts = 1}, {kP, kP, kD, kB});
  CHECK(sums.complete == 3600);
  CHECK(sums.preemptions > 1000);
  // A row may be preempted when its request has just ended.
  CHECK(sums.attempts <= 3600 + sums.preemptions);
  CHECK(sums.attempts > 4600);
}

TEST_CASE("relays: every request is complete, in one attempt while nothing breaks") {
  for (const auto& roles : {std::vector{kP, kP, kD}, std::vector{kB, kB, kB},
                            std::vector{kP, kB, kD}, std::vector{kP, kP, kP, kP, kD}}) {
    const int max_ranks = 2 + static_cast<int>(roles.size()) % 3;
    const Sums sums = RunSeeds(
        200, 12, {}, {.relay = {.min_tokens = 17, .min_ranks = 2, .max_ranks = max_ranks}}, roles);
    CHECK(sums.complete == 2400);
    CHECK(sums.attempts == 2400);
    CHECK(sums.relays > 150);
  }
}

TEST_CASE("relays whose heads, tails and decode workers fail, are lost or full") {
  const Sums sums = RunSeeds(600, 12,
                             {.lose_worker = 5,
                              .join_worker = 5,
                              .fail_part = 20,
                              .no_room = 200,
                              .preempt = 20,
                              .spare_last_worker = true},
                             {.max_attempts = 1000,
                              .max_lost_attempts = 1000,
                              .relay = {.min_tokens = 17, .min_ranks = 2, .max_ranks = 4}},
                             {kP, kP, kP, kD, kB});
  CHECK(sums.complete == 7200);
  CHECK(sums.attempts > 9000);
  CHECK(sums.relays > 1000);
}

TEST_CASE("everything at once, with cancels and few attempts") {
  const Sums sums = RunSeeds(1000, 12,
                             {.lose_worker = 5,
                              .join_worker = 5,
                              .fail_part = 10,
                              .no_room = 200,
                              .cancel = 5,
                              .wait = 20,
                              .preempt = 20},
                             {.max_attempts = 3,
                              .relay = {.min_tokens = 30, .min_ranks = 2},
                              .worker_wait = absl::Seconds(1)},
                             {kP, kP, kD, kB});
  CHECK(sums.complete + sums.cancelled + sums.failed == 12000);
  CHECK(sums.complete > 6500);
  CHECK(sums.cancelled > 300);
  CHECK(sums.failed > 30);
  CHECK(sums.relays > 1000);
}

}  // namespace baton
