// The clock of deadlines and durations. Pure function, any thread.
#pragma once

#include "absl/time/time.h"

namespace baton {

// Time of a clock that never jumps when the machine's clock is set, and that runs while a process
// is stopped. Only differences have a meaning; for dates use absl::Now.
absl::Time MonotonicNow();

}  // namespace baton
