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
  // Of an int8 layout: k and v are whole numbers, to be multiplied with these (n_keys).
  std::vector<float> k_scale, v_scale;
};

// n elements (a multiple of 16) as an int8 page keeps them: a scale and whole numbers.
struct ReferenceInt8 {
  float scale;
  std::vector<int8_t> numbers;
};
ReferenceInt8 EncodeInt8(const bf16* x, int n);

// A row after all segments are folded: what the result is divided from. fp32, so that a sum in
// another order shows (bf16 results hide nearly all of it).
struct ReferenceState {
  float max = 0, sum = 0;
  std::vector<float> out;  // (value_dim)
};
struct ReferenceRule {
  double scale = 1;
  int window = 0;       // keys visible, its own included; 0: all
  double soft_cap = 0;  // 0: none
};
ReferenceState ReferenceAttentionState(const ReferenceKv& kv, const bf16* q, int position,
                                       const ReferenceRule& rule);

// One query row at absolute position `position` against keys 0..position. out (value_dim).
// The unit is compiled with FMA; sets the numerics MXCSR itself.
void ReferenceAttention(const ReferenceKv& kv, const bf16* q, int position,
                        const ReferenceRule& rule, bf16* out);

// The same with softmax and sums in double, nothing rounded.
std::vector<double> ExactAttention(const ReferenceKv& kv, const bf16* q, int position,
                                   const ReferenceRule& rule);

}  // namespace baton
