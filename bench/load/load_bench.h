// `baton bench load`: requests or conversations against a running server over HTTP. Reports TTFT,
// the gap before token 2, ITL, E2E latency and throughput with vLLM's definitions and field names,
// and goodput (goodput.h); or searches the highest rate at which most requests are good.
#pragma once

#include <string>
#include <vector>

#include "bench/load/conversation.h"
#include "bench/load/goodput.h"
#include "bench/load/workload.h"

namespace baton {

struct LoadBenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string label = "baton";
  // Requests. Of conversations: trace, scales, context, vocabulary, first prompt, answers and seed
  // are these, too.
  Workload workload;
  ConversationOptions conversations;        // of its own: users, number, turns, new tokens, think
  std::vector<std::string> worker_metrics;  // http://HOST:PORT of all workers, for conversations
  int max_concurrency = 256;
  GoodputLimits limits;
  std::string idle_file;  // idle figures: read if it exists, else measured and written
  bool find_rate = false;
  int n_warmup = 4;  // requests before the clock starts, not counted
  bool json = false;
  std::string plot_file;  // a picture of TTFT and ITL, as SVG; empty: none
  bool detailed = false;  // json has a row of every request: input_lens, ttfts (s)
};

// Prints the table (and with json one object as the last line). Returns the exit status: 0 when
// no request failed, and with find_rate when a rate was found.
int RunLoadBench(const LoadBenchOptions& options);

}  // namespace baton
