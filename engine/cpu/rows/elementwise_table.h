// Builds element-wise kernels from the rows of one path: for GetElementwiseKernels, and for tests
// of rows whose instructions are emulated.
#pragma once

#include <cstring>

#include "common/check.h"
#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/rows/elementwise.h"
#include "engine/cpu/rows/elementwise_rows.h"

namespace baton {
namespace {

// Groups of a plane: kv_layout.h. Plain moves of pairs (K) and elements (V): one form for every
// path. Widths are even.
inline void WriteKey(const bf16* k, int d, int d_padded, int token, bf16* group) {
  bf16* const to = group + 2 * token;
  for (int64_t i = 0; i < d; i += 2) std::memcpy(to + i * kLanes, k + i, 2 * sizeof(bf16));
  for (int64_t i = d; i < d_padded; i += 2) std::memset(to + i * kLanes, 0, 2 * sizeof(bf16));
}

inline void WriteValue(const bf16* v, int d, int token, bf16* group) {
  bf16* const to = group + token / 2 * 2 * d + token % 2;
  for (int64_t i = 0; i < d; ++i) to[2 * i] = v[i];
}

inline void WriteBf16(const KvShape& shape, const bf16* k, const bf16* v, int token,
                      std::byte* k_group, std::byte* v_group) {
  WriteKey(k, shape.key_dim, shape.key_dim_padded(), token, reinterpret_cast<bf16*>(k_group));
  if (!shape.values_in_keys)
    WriteValue(v, shape.value_dim, token, reinterpret_cast<bf16*>(v_group));
}

inline void WriteInt8(const ElementwiseRows& rows, const KvShape& shape, const bf16* k,
                      const bf16* v, int token, std::byte* k_group, std::byte* v_group) {
  constexpr int64_t kScaleBytes = sizeof(float) * kLanes;
  const auto encode = [&](const bf16* x, int64_t n, std::byte* group, int8_t* numbers) {
    reinterpret_cast<float*>(group)[token] = rows.quantize(x, n, numbers);
  };
  int8_t numbers[kMaxKeyDim];
  encode(k, shape.key_dim, k_group, numbers);
  int8_t* const column = reinterpret_cast<int8_t*>(k_group + kScaleBytes) + token;
  for (int64_t i = 0; i < shape.key_dim; ++i) column[i * kLanes] = numbers[i];
  if (shape.values_in_keys) return;
  encode(v, shape.value_dim, v_group,
         reinterpret_cast<int8_t*>(v_group + kScaleBytes) + token * shape.value_dim);
}

template <const ElementwiseRows& (*kRows)()>
void WriteKv(const KvLayout& layout, int layer, int head, const bf16* k, const bf16* v,
             std::byte* plane, int slot) {
  BATON_DCHECK(slot >= 0 && slot < layout.page_tokens);
  const KvShape& shape = layout.shape(layer);
  const int64_t group = slot / kLanes;
  const int token = slot % kLanes;
  std::byte* const keys = plane + layout.KOffset(layer, head) + group * layout.KGroupBytes(layer);
  std::byte* const values = shape.values_in_keys ? nullptr
                                                 : plane + layout.VOffset(layer, head) +
                                                       group * layout.VGroupBytes(layer);
  if (layout.type == KvType::kInt8)
    WriteInt8(kRows(), shape, k, v, token, keys, values);
  else
    WriteBf16(shape, k, v, token, keys, values);
}

template <const ElementwiseRows& (*kRows)()>
void ApplyRmsNorm(const RowNorm& norm, const bf16* x, bf16* out) {
  kRows().rms_norm(x, norm.weight, norm.n, norm.n_padded, norm.eps, out);
}
template <const ElementwiseRows& (*kRows)()>
void ApplyLayerNorm(const RowNorm& norm, const bf16* x, bf16* out) {
  kRows().layer_norm(x, norm.weight, norm.bias, norm.n, norm.n_padded, norm.eps, out);
}

template <const ElementwiseRows& (*kRows)()>
ElementwiseKernels ElementwiseKernelsOf() {
  const ElementwiseRows& rows = kRows();
  return {rows.rms_norm, rows.layer_norm, ApplyRmsNorm<kRows>, ApplyLayerNorm<kRows>, rows.add,
          rows.scale,    rows.soft_cap,   rows.rope,           WriteKv<kRows>};
}

}  // namespace
}  // namespace baton
