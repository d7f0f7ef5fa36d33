// The CPU time of the calling thread, for bounds that a busy machine does not break.
#pragma once

#include <ctime>

#include "absl/time/time.h"

namespace baton {

inline absl::Duration ThreadTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace baton
