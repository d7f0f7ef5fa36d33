#include "engine/threads/compute_pool.h"

#include <immintrin.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/threads/mxcsr.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

TEST_CASE("every item runs exactly once, on a member of the pool") {
  const int threads = GENERATE(1, 2, 3, 8);
  const int spin_us = GENERATE(0, 20);
  ComputePool pool(threads, spin_us);
  REQUIRE(pool.n_threads() == threads);
  for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(static_cast<size_t>(n), 0);  // plain memory: TSan sees a double claim
    std::vector<int> member_of(static_cast<size_t>(n), -1);
    pool.For(n, [&](int64_t item, int member) {
      ++runs[static_cast<size_t>(item)];
      member_of[static_cast<size_t>(item)] = member;
    });
    REQUIRE(std::count(runs.begin(), runs.end(), 1) == n);
    for (int member : member_of) REQUIRE((member >= 0 && member < threads));
  }
}

TEST_CASE("a member never runs two items at once, and results are visible after For") {
  ComputePool pool(4, 0);
  std::vector<int64_t> sum_of_member(4, 0);
  constexpr int64_t kItems = 5000;
  pool.For(kItems,
           [&](int64_t item, int member) { sum_of_member[static_cast<size_t>(member)] += item; });
  REQUIRE(std::accumulate(sum_of_member.begin(), sum_of_member.end(), int64_t{0}) ==
          kItems * (kItems - 1) / 2);
}

TEST_CASE("a long row of short jobs loses nothing, oversubscribed or not") {
  const int spin_us = GENERATE(0, 5, 50);
  ComputePool pool(6, spin_us);
  std::atomic<int64_t> total{0};
  int64_t expected = 0;
  for (int job = 0; job < 4000; ++job) {
    const int64_t n = 1 + job % 9;
    pool.For(n, [&](int64_t item, int) { total.fetch_add(item + 1, std::memory_order_relaxed); });
    expected += n * (n + 1) / 2;
    REQUIRE(total.load() == expected);
  }
}

TEST_CASE("several pools share the cores") {
  std::vector<std::thread> owners;
  std::atomic<int64_t> total{0};
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&total] {
      ComputePool pool(3, 0);
      for (int job = 0; job < 500; ++job) {
        pool.For(5, [&](int64_t, int) { total.fetch_add(1, std::memory_order_relaxed); });
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  REQUIRE(total.load() == 4 * 500 * 5);
}

TEST_CASE("members that sleep are woken, and ragged work stays even") {
  ComputePool pool(2, 0);
  for (int round = 0; round < 3; ++round) {
    // Two items wait for each other, so the test ends only if two members run them.
    std::atomic<int> arrived{0};
    pool.For(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    REQUIRE(arrived.load() == 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough to sleep
  }
}

TEST_CASE("every member flushes denormals, the caller keeps its own setting") {
  const unsigned mine = 0x1f80 | 0x6000;  // round toward zero, no flushing
  const unsigned before = _mm_getcsr();
  _mm_setcsr(mine);
  ComputePool pool(3, 0);
  std::atomic<int> wrong{0};
  const auto check = [&](int64_t, int) {
    volatile float tiny = 1e-39f;  // a denormal
    volatile float sum = tiny + 0.0f;
    if (sum != 0.0f || !HasNumericsMxcsr()) wrong.fetch_add(1);
  };
  for (const int64_t n : {1, 2, 100}) pool.For(n, check);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  REQUIRE(wrong.load() == 0);
  REQUIRE((after & ~kMxcsrStickyFlags) == mine);
}

// Spins for the given milliseconds.
void Spin(int ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST_CASE("a clock tells what time a phase took, and how much of it members waited") {
  const int threads = GENERATE(2, 4);
  ComputePool pool(threads, 0);
  PhaseClock clock(threads);
  pool.SetClock(&clock);
  pool.For(2, [](int64_t, int) { Spin(1); });  // the clock is not started, so this does not count
  clock.Start();
  {
    const PhaseScope linear(pool.clock(), Phase::kQkv);
    {
      const PhaseScope packing(pool.clock(), Phase::kPack);
      Spin(5);
    }
    // One member works; the others have at most an empty item.
    pool.For(2, [](int64_t item, int) { Spin(item == 0 ? 20 : 0); });
  }
  Spin(3);
  clock.Stop();
  Spin(2);
  const PhaseClock::Time qkv = clock.time(Phase::kQkv), pack = clock.time(Phase::kPack),
                         rest = clock.time(Phase::kRest);
  CHECK(qkv.seconds >= 20e-3);
  CHECK(qkv.waiting <= qkv.seconds - 20e-3 / threads);
  CHECK(qkv.waiting >= 0.4 * qkv.seconds);  // (threads - 1) / threads
  CHECK(pack.seconds >= 5e-3);
  CHECK(pack.waiting == 0);  // work of one thread
  CHECK(rest.seconds >= 3e-3);
  CHECK(rest.waiting == 0);
  CHECK(clock.time(Phase::kAttention).seconds == 0);

  // Times of further steps add up, except in a pool without a clock.
  clock.Start();
  pool.For(4, [](int64_t, int) { Spin(1); });
  clock.Stop();
  CHECK(clock.time(Phase::kRest).seconds > rest.seconds);
  CHECK(clock.time(Phase::kRest).waiting > 0);
  pool.SetClock(nullptr);
  const PhaseScope attention(pool.clock(), Phase::kAttention);
  pool.For(2, [](int64_t, int) { Spin(1); });
  CHECK(clock.time(Phase::kAttention).seconds == 0);
}

}  // namespace
}  // namespace baton
