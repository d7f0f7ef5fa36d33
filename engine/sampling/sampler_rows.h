// The passes of the sampler over a whole row of logits, in a unit with vector instructions. NaN
// counts as -inf and +inf as the largest finite number everywhere. Needs the pool's MXCSR. Pure
// functions, any thread.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr double kLog2E = 1.4426950408889634;

struct TopLogit {
  float value;    // -inf if there is none
  int32_t token;  // lowest id with that value
};

TopLogit FindTopLogit(const float* logits, int64_t n);

// Writes the k greatest logits, k <= n, descending, equal ones by ascending id. One pass; the list
// is looked at only for logits that belong into it.
void FindTopLogits(const float* logits, int64_t n, int64_t k, TopLogit* top);

// Returns how many logits stand before that of `token`, whose value is `value`: greater ones, and
// equal ones with a lower id.
int64_t CountBefore(const float* logits, int64_t n, float value, int64_t token);

// Weights are summed in blocks of kWeightBlock tokens: sixteen lanes folded 8, 4, 2, 1 in fp32,
// then blocks in ascending order in fp64.
inline constexpr int64_t kWeightBlock = 256;

// weights[i] = 2^((logits[i] - top) * c). block_sums: one per started block. Both may be null.
// Returns the sum of all weights.
double WeighLogits(const float* logits, int64_t n, float top, float c, float* weights,
                   double* block_sums);

// Makes weights below min_weight 0. Returns the sum of the others in the same order, and writes
// block_sums.
double DropWeightsBelow(float* weights, int64_t n, float min_weight, double* block_sums);

// Number of logits >= threshold, and the sum of their weights in the same order.
struct SumAbove {
  int64_t count;
  double mass;
};
SumAbove SumFrom(const float* logits, const float* weights, int64_t n, float threshold);

// Writes the indices of the logits >= threshold, ascending, to `indices` (room for n). Returns
// their number.
int64_t IndicesFrom(const float* logits, int64_t n, float threshold, int32_t* indices);

}  // namespace baton
