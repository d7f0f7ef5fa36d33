#include "common/clock.h"

#include <ctime>

namespace baton {

absl::Time MonotonicNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace baton
