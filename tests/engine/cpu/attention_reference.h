// The attention of numerics v1 as a scalar program: the executable specification that every kernel
// path must match bit by bit (docs/NUMERICS.md, attention). Slow and plain on purpose.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/numerics/bf16.h"

namespace baton {

// Keys and values of one sequence and one KV head, in logical order.
struct ReferenceKv {
  int key_dim = 0, value_dim = 0;
  std::vector<bf16> k, v;  // (n_keys, key_dim), (n_keys, value_dim)
  // For an int8 layout: k and v are whole numbers to be multiplied with these scales (n_keys).
  std::vector<float> k_scale, v_scale;
};

// n elements (a multiple of 16) in the form of an int8 page: a scale and whole numbers.
struct ReferenceInt8 {
  float scale;
  std::vector<int8_t> numbers;
};
ReferenceInt8 EncodeInt8(const bf16* x, int n);

// The state of a row after all segments are folded, before the division. fp32, so that a different
// order of a sum is visible (bf16 results hide nearly all of it).
struct ReferenceState {
  float max = 0, sum = 0;
  std::vector<float> out;  // (value_dim)
};
struct ReferenceRule {
  double scale = 1;
  int window = 0;       // visible keys, including the row's key; 0: all
  double soft_cap = 0;  // 0: none
};
ReferenceState ReferenceAttentionState(const ReferenceKv& kv, const bf16* q, int position,
                                       const ReferenceRule& rule);

// Computes one query row at absolute position `position` against keys 0..position. out (value_dim).
// The unit is compiled with FMA; the function sets the numerics MXCSR itself.
void ReferenceAttention(const ReferenceKv& kv, const bf16* q, int position,
                        const ReferenceRule& rule, bf16* out);

// Computes the same with softmax and sums in double and without rounding.
std::vector<double> ExactAttention(const ReferenceKv& kv, const bf16* q, int position,
                                   const ReferenceRule& rule);

}  // namespace baton
