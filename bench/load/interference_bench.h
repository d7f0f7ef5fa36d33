// `baton bench interference`: does a long prompt arriving move the inter-token latency of streams
// that are already running? Runs the streams alone, then again while long prompts are prefilled
// one after another, and compares the gaps.
#pragma once

#include <string>

namespace baton {

struct InterferenceBenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string label = "baton";
  int n_streams = 4;
  int stream_prompt_tokens = 64;
  int stream_output_tokens = 400;
  int long_prompt_tokens = 4000;
  int n_rounds = 3;  // idle and loaded in turn, so that drift of the machine meets both
  int vocab = 2048;
  bool json = false;
};

// Prints idle and loaded ITL p50 / p99 and their ratio. Returns 0 when no request failed.
int RunInterferenceBench(const InterferenceBenchOptions& options);

}  // namespace baton
