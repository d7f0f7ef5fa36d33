// Measures where the time of a step goes. A clock is attached to a compute pool
// (ComputePool::SetClock); the forward pass then reports which phase begins, and the pool measures
// how long its members wait in the regions of that phase. Without a clock nothing is measured, and
// a region costs one more test of a pointer.
//
// The time of a phase is the caller's; the times of all phases add up to the time between Start and
// Stop. Waiting is the part of a phase's time in which, averaged over the pool's members, a member
// of a region runs no item: it wakes, takes an item, or waits for the others at the end.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton {

enum class Phase {
  kRest,  // everything outside the named phases
  kEmbed,
  kPack,  // packs rows for linear layers; norms and sums of rows
  kQkv,
  kRope,  // also norms of heads, and writes of K and V
  kAttention,
  kOutput,
  kGateUp,
  kDown,
  kLatent,   // projections between queries or values and latents
  kExperts,  // the MLPs of a sparse layer and the choice of experts
  kHead,
  kSample,
};
inline constexpr int kPhases = 13;
std::string_view PhaseName(Phase phase);  // "linear qkv"

// Used by the thread that calls the pool; AddItem is called by the members.
class PhaseClock {
 public:
  struct Time {
    double seconds = 0;  // including waiting
    double waiting = 0;  // seconds
  };

  explicit PhaseClock(int n_threads);  // n_threads: members of the pool

  // Times of several steps add up. Nothing is counted between Stop and Start. Both CHECK that they
  // alternate, outside any phase.
  void Start();
  void Stop();
  // Sets the caller's phase from now on. Returns the previous phase.
  Phase Enter(Phase phase);
  const Time& time(Phase phase) const { return times_[static_cast<size_t>(phase)]; }

  // ---- for the pool ----
  static int64_t Now();  // steady clock, nanoseconds
  // Begins a region, before the members' first AddItem; EndRegion comes after the last one.
  void BeginRegion();
  // Counts an item of `member` that began at `begin` (Now) and ends now. Members in parallel.
  void AddItem(int member, int64_t begin) {
    members_[static_cast<size_t>(member)].busy += Now() - begin;
  }
  void EndRegion();

 private:
  struct alignas(64) Member {
    int64_t busy = 0;  // nanoseconds in this region
  };

  std::vector<Member> members_;
  std::array<Time, kPhases> times_ = {};
  Phase phase_ = Phase::kRest;
  int64_t since_ = 0, region_begin_ = 0;
  bool runs_ = false;
};

// Sets the caller's phase until the end of the scope. Null clock: no effect.
class PhaseScope {
 public:
  PhaseScope(PhaseClock* clock, Phase phase) : clock_(clock) {
    if (clock_ != nullptr) before_ = clock_->Enter(phase);
  }
  ~PhaseScope() {
    if (clock_ != nullptr) clock_->Enter(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseClock* clock_;
  Phase before_ = Phase::kRest;
};

}  // namespace baton
