#include "engine/cpu/elementwise.h"

#include <cstring>

#include "common/check.h"
#include "engine/cpu/elementwise_rows.h"

namespace baton {
namespace {

// Groups of a plane: kv_layout.h. Plain moves of pairs (K) and elements (V): one form for every
// path. Widths are even.
void WriteKey(const bf16* k, int d, int d_padded, int token, bf16* group) {
  bf16* const to = group + 2 * token;
  for (int64_t i = 0; i < d; i += 2) std::memcpy(to + i * kLanes, k + i, 2 * sizeof(bf16));
  for (int64_t i = d; i < d_padded; i += 2) std::memset(to + i * kLanes, 0, 2 * sizeof(bf16));
}

void WriteValue(const bf16* v, int d, int token, bf16* group) {
  bf16* const to = group + token / 2 * 2 * d + token % 2;
  for (int64_t i = 0; i < d; ++i) to[2 * i] = v[i];
}

void WriteKv(const KvLayout& layout, int layer, int head, const bf16* k, const bf16* v,
             std::byte* plane, int slot) {
  DCHECK(layout.type == KvType::kBf16 && slot >= 0 && slot < layout.page_tokens);
  const KvShape& shape = layout.shape(layer);
  const int64_t group = slot / kLanes;
  const int token = slot % kLanes;
  std::byte* const keys = plane + layout.KOffset(layer, head) + group * layout.KGroupBytes(layer);
  WriteKey(k, shape.key_dim, shape.key_dim_padded(), token, reinterpret_cast<bf16*>(keys));
  if (shape.values_in_keys) return;
  std::byte* const values = plane + layout.VOffset(layer, head) + group * layout.VGroupBytes(layer);
  WriteValue(v, shape.value_dim, token, reinterpret_cast<bf16*>(values));
}

ElementwiseKernels Of(const ElementwiseRows& rows) { return {rows.rms_norm, rows.rope, WriteKv}; }

}  // namespace

const ElementwiseKernels& GetElementwiseKernels(Isa isa) {
  static const ElementwiseKernels avx2 = Of(ElementwiseRowsAvx2());
  static const ElementwiseKernels avx512 = Of(ElementwiseRowsAvx512());
  return isa == Isa::kAvx2 ? avx2 : avx512;
}

}  // namespace baton
