#include "engine/threads/compute_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "common/check.h"
#include "engine/threads/mxcsr.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

// Sleeps while *word == seen (spurious returns are fine: callers loop).
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}

void FutexWake(std::atomic<uint32_t>& word, int n) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, n, nullptr, nullptr,
          0);
}

// Spins until done() or spin_us have passed; returns done().
template <typename Done>
bool SpinUntil(int spin_us, const Done& done) {
  if (done()) return true;
  if (spin_us <= 0) return false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  do {
    for (int i = 0; i < 32; ++i) {
      _mm_pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The claim word: job number (upper half) and next item (lower half). kClosed as the item means
// that the job's fields are being replaced.
constexpr uint64_t kClosed = 0xffffffffu;
constexpr uint64_t ClaimWord(uint32_t job, uint64_t item) { return uint64_t{job} << 32 | item; }

}  // namespace

// A member takes an item by compare-and-swap on `claim`. The swap succeeds only while the item is
// unclaimed, so the caller is still waiting for the item, and the job's fields read before belong
// to it. The caller therefore waits for items, never for members: a member that wakes late finds no
// item.
struct ComputePool::Shared {
  alignas(64) std::atomic<uint64_t> claim{ClaimWord(0, kClosed)};
  // The job. Written by the caller while the claim word is closed. Release stores and acquire
  // loads: a reader of a new field also sees the closing of the old job.
  std::atomic<int64_t> n{0};
  std::atomic<Call> call{nullptr};
  std::atomic<const void*> fn{nullptr};

  alignas(64) std::atomic<uint32_t> done{0};  // items finished; the caller's futex
  std::atomic<bool> caller_sleeps{false};

  alignas(64) std::atomic<uint32_t> signal{0};  // counts jobs (and the stop); the members' futex
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};

  std::vector<std::thread> threads;
};

ComputePool::ComputePool(int n_threads, int spin_us)
    : n_threads_(n_threads), spin_us_(spin_us), shared_(std::make_unique<Shared>()) {
  BATON_CHECK(n_threads >= 1);
  for (int member = 1; member < n_threads; ++member) {
    shared_->threads.emplace_back(
        [shared = shared_.get(), member, spin_us] { Member(*shared, member, spin_us); });
  }
}

ComputePool::~ComputePool() {
  shared_->stop.store(true);
  shared_->signal.fetch_add(1);
  FutexWake(shared_->signal, INT_MAX);
  for (std::thread& thread : shared_->threads) thread.join();
}

void ComputePool::Work(Shared& shared, int member) {
  uint64_t claim = shared.claim.load(std::memory_order_acquire);
  while (true) {
    const uint64_t item = claim & kClosed;
    const int64_t n = shared.n.load(std::memory_order_acquire);
    const Call call = shared.call.load(std::memory_order_acquire);
    const void* fn = shared.fn.load(std::memory_order_acquire);
    if (item == kClosed || static_cast<int64_t>(item) >= n) return;
    if (!shared.claim.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) continue;
    call(fn, static_cast<int64_t>(item), member);
    // Sequentially consistent, like the caller's side: one of the two sees the other's store.
    if (shared.done.fetch_add(1) + 1 == n && shared.caller_sleeps.load()) {
      FutexWake(shared.done, 1);
    }
    claim = shared.claim.load(std::memory_order_acquire);
  }
}

void ComputePool::Member(Shared& shared, int member, int spin_us) {
  SetNumericsMxcsr();
  uint32_t seen = 0;
  while (true) {
    const auto signalled = [&] { return shared.signal.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(spin_us, signalled)) {
      shared.sleepers.fetch_add(1);
      while (shared.signal.load() == seen) FutexWait(shared.signal, seen);
      shared.sleepers.fetch_sub(1);
    }
    seen = shared.signal.load(std::memory_order_acquire);
    if (shared.stop.load()) return;
    BATON_DCHECK(HasNumericsMxcsr());
    Work(shared, member);
  }
}

void ComputePool::Run(int64_t n, Call call, const void* fn) {
  BATON_CHECK(n < static_cast<int64_t>(kClosed));
  if (n <= 0) return;
  if (clock_ != nullptr && n > 1 && n_threads_ > 1) return RunTimed(n, call, fn);
  RunItems(n, call, fn);
}

// Runs every item between two reads of the clock. Single-threaded work has no waiting members.
void ComputePool::RunTimed(int64_t n, Call call, const void* fn) {
  struct Timed {
    Call call;
    const void* fn;
    PhaseClock* clock;
  };
  const Timed timed{call, fn, clock_};
  clock_->BeginRegion();
  RunItems(
      n,
      [](const void* f, int64_t item, int member) {
        const Timed& t = *static_cast<const Timed*>(f);
        const int64_t begin = PhaseClock::Now();
        t.call(t.fn, item, member);
        t.clock->AddItem(member, begin);
      },
      &timed);
  clock_->EndRegion();
}

void ComputePool::RunItems(int64_t n, Call call, const void* fn) {
  const NumericsMxcsrScope scope;
  if (n == 1 || n_threads_ == 1) {
    for (int64_t item = 0; item < n; ++item) call(fn, item, 0);
    return;
  }
  Shared& shared = *shared_;
  const uint32_t job = static_cast<uint32_t>(shared.claim.load(std::memory_order_relaxed) >> 32);
  shared.claim.store(ClaimWord(job, kClosed), std::memory_order_release);
  shared.done.store(0, std::memory_order_relaxed);
  shared.n.store(n, std::memory_order_release);
  shared.call.store(call, std::memory_order_release);
  shared.fn.store(fn, std::memory_order_release);
  shared.claim.store(ClaimWord(job + 1, 0), std::memory_order_release);
  shared.signal.fetch_add(1);
  if (const int sleepers = shared.sleepers.load(); sleepers > 0) {
    FutexWake(shared.signal, static_cast<int>(std::min<int64_t>(n - 1, sleepers)));
  }

  Work(shared, 0);

  const uint32_t all = static_cast<uint32_t>(n);
  const auto finished = [&] { return shared.done.load(std::memory_order_acquire) == all; };
  if (SpinUntil(spin_us_, finished)) return;
  shared.caller_sleeps.store(true);
  while (true) {
    const uint32_t done = shared.done.load();
    if (done == all) break;
    FutexWait(shared.done, done);
  }
  shared.caller_sleeps.store(false);
}

}  // namespace baton
