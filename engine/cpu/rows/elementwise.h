// The element-wise operations of numerics v1, one operation order on 16 virtual lanes for every ISA
// path: norms, rope + KV write, sums, scales. Functions work on one row; callers spread rows. Pure
// functions, any thread with the pool's MXCSR.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/linear.h"
#include "engine/kv/kv_layout.h"

namespace baton {

struct ElementwiseKernels {
  // out = bf16((x * inv) * w), inv = 1 / sqrt(sum of squares / n + eps); zero-fills out[n,
  // n_padded). out may be x.
  void (*rms_norm)(const bf16* x, const float* weight, int64_t n, int64_t n_padded, float eps,
                   bf16* out);
  // LayerNorm: bf16(fma((x - mean) * inv, w, bias)), inv = 1 / sqrt(mean square of (x - mean) +
  // eps); zero-fills as rms_norm.
  void (*layer_norm)(const bf16* x, const float* weight, const float* bias, int64_t n,
                     int64_t n_padded, float eps, bf16* out);
  // Norms as above, for rows on their way into a linear layer (RowNorm::apply).
  void (*apply_rms_norm)(const RowNorm& norm, const bf16* x, bf16* out);
  void (*apply_layer_norm)(const RowNorm& norm, const bf16* x, bf16* out);
  // (n) each. add: x = bf16(x + y); scale: x = bf16(x * by); soft_cap: x = cap * tanh(x / cap).
  void (*add)(const bf16* y, int64_t n, bf16* x);
  void (*scale)(float by, int64_t n, bf16* x);
  void (*soft_cap)(float cap, int64_t n, float* x);
  // Rotates pairs (i, i + d/2) of one head in place (docs/NUMERICS.md N5). cos, sin: (d / 2) of the
  // position.
  void (*rope)(bf16* head, int64_t d, const float* cos, const float* sin);
  // Writes K (after rope) and V of one token and KV head into slot `slot` of the layer's plane of a
  // page; no V if the layout has values in keys.
  void (*write_kv)(const KvLayout& layout, int layer, int head, const bf16* k, const bf16* v,
                   std::byte* plane, int slot);
};

const ElementwiseKernels& GetElementwiseKernels(Isa isa);

}  // namespace baton
