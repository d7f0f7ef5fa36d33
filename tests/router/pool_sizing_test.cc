#include "router/pool_sizing.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

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
  sizing.OnEnded(100, 40, now);
  for (const absl::Time end = now + absl::Minutes(2); now < end; now += absl::Seconds(1))
    sizing.Update({}, now);
  CHECK(sizing.prefill() == 0);
  CHECK(sizing.decode() == 0);
  sizing.Update(kWorker, now);
  CHECK(sizing.prefill() == 1);
  CHECK(sizing.decode() == 1);
}

TEST_CASE("workers are not known in the first window, nor before a request has ended") {
  const absl::Time began = absl::UnixEpoch();
  PoolSizing loaded({}), idle({});
  absl::Time now = began;
  Load(&loaded, 20, absl::Seconds(59), &now);
  CHECK(loaded.prefill() == 0);
  CHECK(loaded.decode() == 0);
  Load(&loaded, 20, absl::Seconds(3), &now);
  CHECK(loaded.prefill() == Optimum(20, 0.1));
  CHECK(loaded.decode() == Optimum(20, 40.0 / 400));
  for (now = began; now < began + absl::Minutes(5); now += absl::Seconds(1)) {
    if (now >= began + absl::Minutes(2)) idle.OnRequest(100, 0, now);
    idle.Update(kWorker, now);
    REQUIRE(idle.prefill() == 0);
    REQUIRE(idle.decode() == 0);
  }
  idle.OnEnded(100, 40, now);
  idle.Update(kWorker, now);
  CHECK(idle.prefill() == 1);
  CHECK(idle.decode() == 1);
}

TEST_CASE("while requests come and none ends, the workers to decode stay as many") {
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  Load(&sizing, 40, absl::Minutes(5), &now);
  const int before = sizing.decode();
  REQUIRE(before == Optimum(40, 40.0 / 400));
  now += absl::Hours(24);  // long enough that nothing is left of the ends
  for (int i = 0; i < 400; ++i, now += absl::Seconds(0.5)) {
    sizing.OnRequest(100, 0, now);
    sizing.Update(kWorker, now);
    REQUIRE(sizing.decode() == before);
  }
}

TEST_CASE("updates count once a second") {
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  Load(&sizing, 20, absl::Minutes(3), &now);
  const int before = sizing.decode();
  sizing.Update(kWorker, now);
  for (int i = 0; i < 5000; ++i) sizing.OnRequest(100, 0, now);
  sizing.Update(kWorker, now + absl::Milliseconds(900));
  CHECK(sizing.decode() == before);
  sizing.Update(kWorker, now + absl::Milliseconds(1100));
  CHECK(sizing.decode() > before);
}

// Would take minutes if it tried one batch after the other.
TEST_CASE("a batch as large as a message can say has as many rows as the gap allows") {
  const auto wanted = [](int32_t max_batch) {
    PoolSizing::Worker worker = kWorker;
    worker.max_batch = max_batch;
    worker.pages_total = std::numeric_limits<int32_t>::max();
    PoolSizing sizing({.gap = absl::Milliseconds(12)});
    absl::Time now = absl::UnixEpoch();
    Load(&sizing, 40, absl::Minutes(5), &now, nullptr, worker);
    return sizing.decode();
  };
  CHECK(wanted(std::numeric_limits<int32_t>::max()) == wanted(2));  // 9 + 2 * 1.375 ms
  CHECK(wanted(1) > wanted(2));
}

TEST_CASE("costs without sense ask for many workers, but for a number that there is") {
  PoolSizing::Worker worker = kWorker;
  worker.prefill.token = 1e15;
  worker.step.base = 1e15;
  PoolSizing sizing({});
  absl::Time now = absl::UnixEpoch();
  Load(&sizing, 40, absl::Minutes(2), &now, nullptr, worker);
  CHECK(sizing.prefill() == 1'000'000);
  CHECK(sizing.decode() == 1'000'000);
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
