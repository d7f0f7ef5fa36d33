// top_k and top_p of the sampler (docs/NUMERICS.md N8): which tokens of a row may be drawn. The
// order is by descending logit, equal logits by ascending id. No sort of the vocabulary: the border
// is found by bisection over thresholds, each one vectorized pass in a fixed order, until few
// tokens are left between two of them; those alone are sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

// A row of tokens: (vocab) logits, and weights that decrease with the logits (at most 1; the top
// has 1).
struct WeightedTokens {
  std::span<const float> logits, weights;
};

// Scratch is reused between calls; one filter per thread. Needs the numerics MXCSR.
class TokenFilter {
 public:
  // Returns the ids that may be drawn, ascending, valid until the next call. Tokens of weight 0 may
  // be missing. top: the largest logit; floor: every logit below it has weight 0. Applies top_k (<=
  // 0: off), then top_p to the remaining tokens: the smallest number of most probable tokens whose
  // weights sum to at least top_p of the total (>= 1: off).
  std::span<const int32_t> Keep(const WeightedTokens& row, float top, float floor, int32_t top_k,
                                float top_p);

 private:
  enum class By { kCount, kMass };
  void KeepFirst(const WeightedTokens& row, float top, float floor, By by, double limit);
  void SortBorder(const WeightedTokens& row, float low, float high);

  std::vector<int32_t> kept_;  // indices into the row last filtered
  std::vector<int32_t> border_, found_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_, weights_;  // tokens left after top_k
};

}  // namespace baton
