// Chooses a token from a row of logits: numerics rule N8. A pure function of (logits, params,
// position): uniform numbers come from Philox4x32-10 keyed by the seed, counted by position, never
// from a batch slot. Sums run in token order; ties go to the lowest token id. No libm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"

namespace baton {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // of the token under the unscaled softmax
};

// Scratch is reused between calls; one Sampler per thread.
class Sampler {
 public:
  // position: the absolute position the new token will take.
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      int64_t position);

 private:
  std::vector<int32_t> candidates_;
  std::vector<float> weights_;
};

}  // namespace baton
