// Where the time of a step goes. A clock is attached to a compute pool (ComputePool::SetClock); the
// forward pass then says which phase begins, and the pool measures how long its members wait in the
// regions of that phase. Without one nothing is measured, and a region costs a test of a pointer
// more.
//
// A phase has the caller's time; the times of all phases add up to that between Start and Stop.
// Waiting is the part of it in which, on average over the pool's members, a member of a region
// runs no item: it wakes, takes an item, or waits for the others at the end.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton {

enum class Phase {
  kRest,  // what no phase claims
  kEmbed,
  kPack,  // rows packed for linear layers, and norms and sums of rows
  kQkv,
  kRope,  // and norms of heads, and the writing of K and V
  kAttention,
  kOutput,
  kGateUp,
  kDown,
  kLatent,   // between queries or values and latents
  kExperts,  // the MLPs of a sparse layer and the choice of experts
  kHead,
  kSample,
};
inline constexpr int kPhases = 13;
std::string_view PhaseName(Phase phase);  // "linear qkv"

// Used by the thread that calls the pool; AddItem by its members.
class PhaseClock {
 public:
  struct Time {
    double seconds = 0;  // waiting included
    double waiting = 0;
  };

  explicit PhaseClock(int n_threads);  // of the pool

  // Times of several steps add up. Between Stop and Start nothing is counted.
  void Start();
  void Stop();
  // What the caller does from now on. Returns what it did until now.
  Phase Enter(Phase phase);
  const Time& time(Phase phase) const { return times_[static_cast<size_t>(phase)]; }

  // ---- for the pool ----
  static int64_t Now();  // nanoseconds
  void BeginRegion();
  void AddItem(int member, int64_t begin) {
    members_[static_cast<size_t>(member)].busy += Now() - begin;
  }
  void EndRegion();

 private:
  struct alignas(64) Member {
    int64_t busy = 0;  // in this region
  };

  std::vector<Member> members_;
  std::array<Time, kPhases> times_ = {};
  Phase phase_ = Phase::kRest;
  int64_t since_ = 0, region_begin_ = 0;
  bool runs_ = false;
};

// A phase of the caller, until the scope ends. No clock: nothing.
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
