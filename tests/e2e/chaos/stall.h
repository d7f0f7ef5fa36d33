// Pauses of streams caused by a killed worker.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/clients.h"
#include "tests/e2e/chaos/faults.h"

namespace baton {

// Streams that had tokens before a kill -9 and continued on another worker.
struct Stalls {
  std::vector<double> gap_s;     // per stream: the longest gap with a kill inside
  std::vector<double> excess_s;  // per stream: the gap minus the time to compute the prompt again
};

Stalls FindStalls(const std::vector<ExchangeRecord>& exchanges,
                  const std::vector<FaultRecord>& faults);

// Bound for the p99 of the excess.
inline constexpr double kMaxExcessSeconds = 1.0;

}  // namespace baton
