// Input and output of the sampling of a row, as kernels and the host have it.
#pragma once

#include <cstdint>

namespace baton {

struct SampleRowArguments {
  float temperature = 0;  // 0: the greatest logit
  uint64_t seed = 0;
  int64_t position = 0;
  // Ids from here on are never drawn. 0: the row is not sampled here: its result stays as it is,
  // and its token is -1.
  int32_t drawable = 0;
  int32_t result = 0;  // where the result begins, in units of 8 bytes
};

// The fixed part of a record of device/sampled_results.cc.
struct SampleRowResult {
  uint64_t digest = 0;  // none is computed
  int32_t token = 0;
  float logprob = 0;
  int32_t n_logprobs = 0;
  int32_t unused = 0;
};
static_assert(sizeof(SampleRowResult) == 24);

}  // namespace baton
