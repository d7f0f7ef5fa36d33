// The schedule of faults: a pure function of profile, length and seed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/profile.h"

namespace baton {

// The state of the victim when the fault happens, as far as it is visible from outside.
enum class Moment {
  kAny,
  kPrefill,   // computes a prompt
  kTransfer,  // sends or receives KV: a client has just got its first token
  kDecode,    // has rows in its batch
};
const char* MomentName(Moment moment);

struct Fault {
  absl::Duration at;  // after the start of the load
  FaultKind kind = FaultKind::kKill;
  Moment moment = Moment::kAny;
  uint64_t victim = 0, other = 0;  // random numbers, taken modulo the number of live workers
  absl::Duration lasts;            // for faults that heal
  absl::Duration after_moment;     // delay from the moment to the fault
};

// Returns faults in order of time. The first seconds and the last two have none.
std::vector<Fault> MakeSchedule(const Profile& profile, absl::Duration length, uint64_t seed);

}  // namespace baton
