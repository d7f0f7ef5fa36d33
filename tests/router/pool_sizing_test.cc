#include "router/pool_sizing.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace baton {
namespace {

// A prompt token takes 1 ms; a worker makes 400 tokens per second with 8 rows, 100 with one.
const PoolSizing::Worker kWorker{.prefill = {.n_layers = 1, .token = 1e-3},
                                 .step = {.base = 9e-3, .row = 1.375e-3},
                                 .max_batch = 8,
                                 .pages_total = 1000,
                                 .page_tokens = 16};

// Sends so many requests per second, of 100 prompt tokens and 40 generated ones, for so long.
void Load(PoolSizing* sizing, double per_second, absl::Duration length, absl::Time* now,
          int* changes = nullptr, const PoolSizing::Worker& worker = kWorker) {
  const absl::Duration pause = absl::Seconds(1) / per_second;
  absl::Time next_update = *now;
  int before = sizing->decode();
  for (const absl::Time end = *now + length; *now < end; *now += pause) {
    sizing->OnRequest(100, 0, *now);
    sizing->OnEnded(100, 40, *now);
    if (*now < next_update) continue;
    next_update += absl::Seconds(1);
    sizing->Update(worker, *now);
    if (changes != nullptr && sizing->decode() != before) ++*changes;
    before = sizing->decode();
  }
}

// Workers that the load keeps busy for 70 % of their time.
int Optimum(double per_second, double seconds_per_request) {
  return static_cast<int>(std::ceil(per_second * seconds_per_request / 0.7));
}

TEST_CASE("workers are not known before the costs are, and one is the least") {
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  sizing.Update({}, now);
  CHECK(sizing.prefill() == 0);
  CHECK(sizing.decode() == 0);
  sizing.Update(kWorker, now);
  CHECK(sizing.prefill() == 1);
  CHECK(sizing.decode() == 1);
}

TEST_CASE("twice the load moves the wanted workers to the optimum and does not swing") {
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  for (const double per_second : {20.0, 40.0, 20.0}) {
    int changes = 0;
    const int before = sizing.decode();
    Load(&sizing, per_second, absl::Minutes(8), &now, &changes);
    CHECK(std::abs(sizing.prefill() - Optimum(per_second, 0.1)) <= 1);
    CHECK(std::abs(sizing.decode() - Optimum(per_second, 40.0 / 400)) <= 1);
    CHECK(changes <= std::abs(sizing.decode() - before));  // in one direction only
  }
}

TEST_CASE("without load the workers go down to one") {
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  Load(&sizing, 40, absl::Minutes(3), &now);
  REQUIRE(sizing.decode() > 3);
  sizing.Update(kWorker, now + absl::Minutes(20));
  CHECK(sizing.decode() == 1);
  CHECK(sizing.prefill() == 1);
}

TEST_CASE("a limit of gaps, few pages and a small batch each ask for more workers to decode") {
  const auto wanted = [](absl::Duration gap, const PoolSizing::Worker& worker) {
    PoolSizing sizing({.gap = gap});
    absl::Time now = absl::UnixEpoch();
    Load(&sizing, 40, absl::Minutes(5), &now, nullptr, worker);
    return sizing.decode();
  };
  const int all_rows = wanted(absl::InfiniteDuration(), kWorker);
  CHECK(all_rows == Optimum(40, 40.0 / 400));
  CHECK(wanted(absl::Milliseconds(12), kWorker) > all_rows);  // two rows
  PoolSizing::Worker small = kWorker;
  small.max_batch = 4;
  CHECK(wanted(absl::InfiniteDuration(), small) > all_rows);
  PoolSizing::Worker few_pages = kWorker;
  few_pages.pages_total = 18;  // 140 tokens have 9 pages
  CHECK(wanted(absl::InfiniteDuration(), few_pages) == wanted(absl::Milliseconds(12), kWorker));
}

}  // namespace
}  // namespace baton
