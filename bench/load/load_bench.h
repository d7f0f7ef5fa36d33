// `baton bench load`: replays requests against a running server over HTTP and reports TTFT, the gap
// before token 2, ITL, E2E latency, throughput and goodput, with vLLM's definitions and field
// names.
#pragma once

#include <string>

#include "bench/load/load_trace.h"
#include "common/status.h"

namespace baton {

struct LoadBenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string label = "baton";
  TraceOptions trace;          // used when trace.path is set
  SyntheticOptions synthetic;  // used otherwise
  int max_concurrency = 256;
  double goodput_ttft_ms = 1000,
         goodput_tpot_ms = 100;  // limits of a good request (E2E not limited)
  int n_warmup = 4;              // requests before the clock starts, not counted
  bool json = false;
  bool detailed = false;  // json has a row of every request: input_lens, ttfts (s)
};

// Prints the table (and with json one object as the last line). Returns the exit status: 0 when
// no request failed.
int RunLoadBench(const LoadBenchOptions& options);

}  // namespace baton
