// Chooses a token from a row of logits: numerics rule N8. A pure function of (logits, params,
// position): uniform numbers come from Philox4x32-10 keyed by the seed, counted by position, never
// from a batch slot. Sums run in a fixed order over the vocabulary (sampler_rows.h); ties go to the
// lowest token id. No libm. A NaN logit counts as -inf.
//
// Order of the filters: temperature, then top_k, then top_p over what top_k left. top_p keeps the
// fewest of the most probable tokens whose mass reaches p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"
#include "engine/token_filter.h"

namespace baton {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // of the token under the unscaled softmax
};

// Scratch is reused between calls; one Sampler per thread.
class Sampler {
 public:
  // position: the absolute position the new token will take. logits: at least one; if all are -inf
  // or NaN the result is token 0 with logprob -inf.
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      int64_t position);

 private:
  int32_t Draw(std::span<const float> logits, float top, const SamplingParams& params,
               int64_t position);
  int32_t DrawFromAll(double target) const;
  int32_t DrawFrom(std::span<const int32_t> tokens, double uniform) const;

  std::vector<float> weights_;  // (vocab)
  std::vector<double> block_sums_;
  TokenFilter filter_;
};

}  // namespace baton
