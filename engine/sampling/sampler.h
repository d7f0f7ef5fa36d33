// Chooses a token from a row of logits: docs/NUMERICS.md N8. A pure function of (logits, params,
// position) and of the tokens before, where the parameters need them (sequence_sampling.h). Uniform
// numbers come from Philox4x32-10 keyed by the seed, counted by position, never from a batch slot.
// Sums run in a fixed order over the vocabulary (sampler_rows.h); ties go to the lowest token id.
// No libm. A NaN logit counts as -inf.
//
// Order: the logits are changed (bias, penalties, masks), then temperature, min_p, top_k, and top_p
// over what these left. top_p keeps the fewest of the most probable tokens whose mass reaches p.
// Parameters that change no logit cost nothing: the row is then read where it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"
#include "engine/sampling/sequence_sampling.h"
#include "engine/threads/compute_pool.h"

namespace baton {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // log-probability of the token under the softmax of the unchanged logits
  // As the parameters ask: the most probable tokens that may exist, descending (equal ones by
  // ascending id), then logprob_tokens in their order.
  std::vector<TokenLogprob> logprobs{};
  uint64_t digest = 0;  // LogitsDigest of the row, if it was asked for (Backend::Sample)
};

struct SampleRow {
  std::span<const float> logits;               // (vocab), not empty
  const SequenceSampling* sampling = nullptr;  // not null
  int64_t position = 0;                        // absolute position of the new token
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

  // If all logits are -inf or NaN the result is token 0 with logprob -inf; if only the changed
  // logits are, for nothing that is allowed is left, it is token 0.
  SampledToken Sample(std::span<const float> logits, const SequenceSampling& sampling,
                      int64_t position);
  // Samples for parameters that need no history, without stop tokens.
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      int64_t position);
  // Samples each row as Sample does for that row alone; sampled[i] belongs to rows[i].
  void SampleRows(std::span<const SampleRow> rows, std::span<SampledToken> sampled);
  // Draws nothing: tokens[i] is known to follow row i of the (n, vocab) logits. top: most probable
  // tokens to tell, of the ids [0, end). Spreads rows as SampleRows does.
  void ScoreRows(std::span<const float> logits, std::span<const int32_t> tokens, int top,
                 size_t end, std::span<PromptLogprob> scored);

 private:
  class Member;  // scratch of one member of the pool
  ComputePool* pool_;
  std::vector<Member> members_;
};

}  // namespace baton
