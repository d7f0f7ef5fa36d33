// How long streams stood still because a worker was killed.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/clients.h"
#include "tests/e2e/chaos/faults.h"

namespace baton {

// Of streams that had tokens before a kill -9 and went on elsewhere.
struct Stalls {
  std::vector<double> gap_s;     // of each stream, the longest gap that spans a kill
  std::vector<double> excess_s;  // the same less the time of computing the prompt again
};

Stalls FindStalls(const std::vector<ExchangeRecord>& exchanges,
                  const std::vector<FaultRecord>& faults);

// p99 of the excess must stay below.
inline constexpr double kMaxExcessSeconds = 1.0;

}  // namespace baton
