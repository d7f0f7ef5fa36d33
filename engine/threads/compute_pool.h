// Threads for the inside of a step. The caller (engine thread) is member 0 and works too. Waiting
// threads spin at most spin_us, then sleep on a futex; bits never depend on the partition. Every
// thread runs with MXCSR FTZ + DAZ, round to nearest (docs/NUMERICS.md N10). The caller has this
// setting inside For and its own setting again afterwards.
#pragma once

#include <cstdint>
#include <memory>

namespace baton {

class PhaseClock;

class ComputePool {
 public:
  // n_threads >= 1, the caller included. spin_us: 0 where cores are oversubscribed.
  ComputePool(int n_threads, int spin_us);
  ~ComputePool();  // joins
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int n_threads() const { return n_threads_; }

  // Measures the regions from now on (phase_clock.h); null (the default): no measurement. The clock
  // belongs to the caller. Call only between calls of For.
  void SetClock(PhaseClock* clock) { clock_ = clock; }
  PhaseClock* clock() const { return clock_; }

  // Calls fn(item, member) once for every item in [0, n), n < 2^32 - 1, spread over the members
  // (member < n_threads()), and returns when all are done. Items are claimed one by one in
  // ascending order (ragged work stays even). All writes by fn are visible to the caller
  // afterwards. fn must not throw. Not reentrant; one For at a time.
  template <typename Fn>
  void For(int64_t n, const Fn& fn) {
    Run(
        n,
        [](const void* f, int64_t item, int member) { (*static_cast<const Fn*>(f))(item, member); },
        &fn);
  }

 private:
  using Call = void (*)(const void* fn, int64_t item, int member);
  struct Shared;
  void Run(int64_t n, Call call, const void* fn);
  void RunTimed(int64_t n, Call call, const void* fn);
  void RunItems(int64_t n, Call call, const void* fn);
  static void Work(Shared& shared, int member);
  static void Member(Shared& shared, int member, int spin_us);

  int n_threads_;
  int spin_us_;
  PhaseClock* clock_ = nullptr;
  std::unique_ptr<Shared> shared_;
};

}  // namespace baton
