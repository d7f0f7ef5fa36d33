// Requests to replay: from a serving trace (lengths, arrivals, shared prefixes) or synthetic.
// A pure function of file, options and seed: the same prompts and arrivals on every run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace baton {

struct LoadRequest {
  double start_s = 0;                // after the start of the run
  std::vector<int32_t> prompt = {};  // token ids
  int max_tokens = 1;
  bool return_tokens = false;  // the answer tells its token ids, and those of the prompt
};

// Returns token `index` of a made-up text, the same whenever it is asked for. No special token.
int32_t MadeUpToken(uint64_t text, uint64_t index, int vocab);

struct TraceOptions {
  std::string path;  // Mooncake JSON lines
  int n_requests = 300;
  double length_scale = 1;  // factor on prompt and output lengths
  double time_scale = 1;    // > 1 stretches arrivals
  double spread_s = 0;      // max random delay of an arrival, in seconds of trace time: spreads
                            // arrivals evenly, as before the trace rounded them
  int max_context = 4096;   // prompts are clipped so that prompt + output fit
  int vocab = 2048;
  uint64_t seed = 1;
};

// Returns the requests, ascending in start_s. Token i of the block with hash id h is a function of
// (h, i): equal ids give equal prefixes, as in the trace. Tokens past the last whole block depend
// on the request. Errors: an unreadable file, or a line that is no request.
absl::StatusOr<std::vector<LoadRequest>> ReadTrace(const TraceOptions& options);

struct SyntheticOptions {
  int n_requests = 100;
  int prompt_tokens = 512;
  int output_tokens = 64;
  double request_rate = 0;  // per second, Poisson; 0 = all at once
  int vocab = 2048;
  uint64_t seed = 1;
};
std::vector<LoadRequest> MakeSynthetic(const SyntheticOptions& options);

}  // namespace baton
