// The requests of a load run: from a trace or synthetic, at the recorded or a wanted rate, for some
// time. A pure function of options and seed.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/load/load_trace.h"

namespace baton {

struct Workload {
  TraceOptions trace = {};          // used when trace.path is set
  SyntheticOptions synthetic = {};  // used otherwise
  double rate = 0;     // mean requests per second; 0: as the trace has them, synthetic all at once
  double seconds = 0;  // the run ends then; 0: with its last answer
};

// Returns the requests that arrive within the run, ascending in start_s. A trace that is too short
// for `seconds` begins again, with other tokens. Tokens of two seeds have nothing in common.
// Errors: those of ReadTrace; a rate, and a trace without arrivals to scale.
absl::StatusOr<std::vector<LoadRequest>> MakeRequests(const Workload& workload, uint64_t seed);

// Returns requests per second, from the first arrival to the last; 0: all arrive at once.
double MeanRate(const std::vector<LoadRequest>& requests);

}  // namespace baton
