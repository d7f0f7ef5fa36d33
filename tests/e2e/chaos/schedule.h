// When what breaks: a pure function of profile, length and seed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/profile.h"

namespace baton {

// What the victim must be doing when it is hit, as far as it can be seen from outside.
enum class Moment {
  kAny,
  kPrefill,   // it computes a prompt
  kTransfer,  // KV is on its way to or from it: a client has just got its first token
  kDecode,    // rows are in its batch
};
const char* MomentName(Moment moment);

struct Fault {
  absl::Duration at;  // after the start of the load
  FaultKind kind = FaultKind::kKill;
  Moment moment = Moment::kAny;
  uint64_t victim = 0, other = 0;  // random numbers, taken modulo the workers that live then
  absl::Duration lasts;            // of faults that heal
  absl::Duration after_moment;     // hit so much later than the moment was seen
};

// Ascending by time. The first seconds and the last two stay calm.
std::vector<Fault> MakeSchedule(const Profile& profile, absl::Duration length, uint64_t seed);

}  // namespace baton
