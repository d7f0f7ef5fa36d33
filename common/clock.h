// The clock of deadlines and durations. Pure function, any thread.
#pragma once

#include "absl/time/time.h"

namespace baton {

// Never jumps when somebody sets the machine's clock, and goes on while a process is stopped. Only
// differences mean anything; for dates use absl::Now.
absl::Time MonotonicNow();

}  // namespace baton
