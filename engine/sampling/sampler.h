// Chooses a token from a row of logits: docs/NUMERICS.md N8. A pure function of (logits, params,
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
#include "engine/threads/compute_pool.h"

namespace baton {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // log-probability of the token under the unscaled softmax
};

struct SampleRow {
  std::span<const float> logits;  // (vocab), not empty
  SamplingParams params;
  int64_t position = 0;  // absolute position of the new token
};

// Engine thread; one Sampler per thread. Scratch is reused between calls.
class Sampler {
 public:
  // Spreads rows over the pool's members; the pool must not be in use meanwhile. Null: the calling
  // thread does all the work.
  explicit Sampler(ComputePool* pool = nullptr);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // If all logits are -inf or NaN the result is token 0 with logprob -inf.
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      int64_t position);
  // Samples each row as Sample does for that row alone; sampled[i] belongs to rows[i].
  void SampleRows(std::span<const SampleRow> rows, std::span<SampledToken> sampled);

 private:
  class Member;  // scratch of one member of the pool
  ComputePool* pool_;
  std::vector<Member> members_;
};

}  // namespace baton
