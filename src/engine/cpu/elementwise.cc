#include "engine/cpu/elementwise.h"

#include <cstring>

#include "common/check.h"
#include "engine/cpu/elementwise_rows.h"

namespace baton {
namespace {

// Layout of a page block: kv_layout.h. Plain moves of pairs (K) and elements (V): one form for
// every path. head_dim is even.
void WriteKv(const KvLayout& layout, const bf16* k, const bf16* v, std::byte* k_block,
             std::byte* v_block, int slot) {
  DCHECK(layout.type == KvType::kBf16 && slot >= 0 && slot < layout.page_tokens);
  const int64_t d = layout.head_dim, d_padded = layout.head_dim_padded;
  const int64_t group = slot / kLanes, token = slot % kLanes;
  bf16* const to_k = reinterpret_cast<bf16*>(k_block) + group * kLanes * d_padded + 2 * token;
  for (int64_t i = 0; i < d; i += 2) std::memcpy(to_k + i * kLanes, k + i, 2 * sizeof(bf16));
  for (int64_t i = d; i < d_padded; i += 2) std::memset(to_k + i * kLanes, 0, 2 * sizeof(bf16));
  bf16* const to_v =
      reinterpret_cast<bf16*>(v_block) + group * kLanes * d + token / 2 * 2 * d + token % 2;
  for (int64_t i = 0; i < d; ++i) to_v[2 * i] = v[i];
}

ElementwiseKernels Of(const ElementwiseRows& rows) { return {rows.rms_norm, rows.rope, WriteKv}; }

}  // namespace

const ElementwiseKernels& GetElementwiseKernels(Isa isa) {
  static const ElementwiseKernels avx2 = Of(ElementwiseRowsAvx2());
  static const ElementwiseKernels avx512 = Of(ElementwiseRowsAvx512());
  return isa == Isa::kAvx2 ? avx2 : avx512;
}

}  // namespace baton
