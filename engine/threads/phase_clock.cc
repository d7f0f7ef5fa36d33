#include "engine/threads/phase_clock.h"

#include <chrono>

#include "common/check.h"

namespace baton {

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kRest:
      return "rest";
    case Phase::kEmbed:
      return "embed";
    case Phase::kPack:
      return "pack";
    case Phase::kQkv:
      return "linear qkv";
    case Phase::kRope:
      return "rope";
    case Phase::kAttention:
      return "attention";
    case Phase::kOutput:
      return "linear o";
    case Phase::kGateUp:
      return "linear gate_up";
    case Phase::kDown:
      return "linear down";
    case Phase::kLatent:
      return "linear latent";
    case Phase::kExperts:
      return "experts";
    case Phase::kHead:
      return "linear head";
    case Phase::kSample:
      return "sample";
  }
  return "unknown";
}

PhaseClock::PhaseClock(int n_threads) : members_(static_cast<size_t>(n_threads)) {}

int64_t PhaseClock::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void PhaseClock::Start() {
  BATON_CHECK(!runs_ && phase_ == Phase::kRest);
  runs_ = true;
  since_ = Now();
}

void PhaseClock::Stop() {
  BATON_CHECK(runs_ && phase_ == Phase::kRest);
  Enter(Phase::kRest);
  runs_ = false;
}

Phase PhaseClock::Enter(Phase phase) {
  const Phase before = phase_;
  phase_ = phase;
  if (!runs_) return before;
  const int64_t now = Now();
  times_[static_cast<size_t>(before)].seconds += 1e-9 * static_cast<double>(now - since_);
  since_ = now;
  return before;
}

void PhaseClock::BeginRegion() {
  for (Member& member : members_) member.busy = 0;
  region_begin_ = Now();
}

void PhaseClock::EndRegion() {
  if (!runs_) return;
  const int64_t n = static_cast<int64_t>(members_.size());
  int64_t idle = n * (Now() - region_begin_);
  for (const Member& member : members_) idle -= member.busy;
  times_[static_cast<size_t>(phase_)].waiting +=
      1e-9 * static_cast<double>(idle) / static_cast<double>(n);
}

}  // namespace baton
