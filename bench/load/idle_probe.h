// Measures what an idle server takes: requests one at a time, before a load run's clock starts.
// Written to a file, the figures judge several clusters alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/load/goodput.h"

namespace baton {

struct IdleProbeOptions {
  int min_prompt = 16, max_prompt = 16;  // tokens; lengths between them are interpolated
  int n_lengths = 5, n_samples = 3;      // the figure of a length is the median of its samples
  int output_tokens = 16;
  int vocab = 2048;
  uint64_t seed = 1;  // of prompts that nobody sent before
};

// Returns the lengths to measure, ascending, equal steps of their logarithm.
std::vector<int> IdleLengths(const IdleProbeOptions& options);

// Errors: a request fails, or the server had KV of a prompt, whose time then says nothing.
absl::StatusOr<IdleFigures> MeasureIdle(const HttpClient& client, const IdleProbeOptions& options);

// One JSON object: {"step_ms": 1.5, "ttft_ms": [[16, 4.0], [512, 80.0]]}.
std::string IdleJson(const IdleFigures& figures);
// InvalidArgument: not such an object, or its lengths do not ascend.
absl::StatusOr<IdleFigures> ParseIdleJson(std::string_view json);

}  // namespace baton
