// Log-probabilities of tokens under the softmax of a row of logits as the model gave them, before
// bias, penalties, masks and temperature (docs/NUMERICS.md N8). Ids without a token take part in
// the softmax. Any thread; needs the numerics MXCSR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"
#include "engine/sampling/sampler_rows.h"

namespace baton {

class RowLogprobs {
 public:
  // logits: (vocab), not empty; they outlive it.
  explicit RowLogprobs(std::span<const float> logits);

  TopLogit top() const { return top_; }
  // -inf for an id outside the row, and where the logit is -inf or NaN.
  float Of(int32_t token) const;
  // The token's place among the ids [0, end): 1 is the most probable one's.
  int32_t RankOf(int32_t token, size_t end) const;
  // Appends the k most probable of the ids [0, end), descending, equal ones by ascending id; all of
  // them if they are fewer.
  void AppendTop(int k, size_t end, std::vector<TokenLogprob>* out) const;

 private:
  const std::span<const float> logits_;
  const TopLogit top_;
  double log_total_ = 0;  // natural logarithm of the sum of e^(logit - top)
};

}  // namespace baton
