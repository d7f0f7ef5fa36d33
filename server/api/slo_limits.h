// Limits by which requests are counted as good (server.slo_ttft, server.slo_itl); a request keeps
// those of its arrival. Plain data.
#pragma once

#include "absl/time/time.h"

namespace baton {

struct SloLimits {
  // Arrival to the first token, and the 99th percentile of a choice's own gaps; zero: no limit.
  absl::Duration ttft{}, itl{};
};

}  // namespace baton
