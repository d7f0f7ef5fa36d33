#include <cstring>

#include "engine/cpu/linear.h"

namespace baton {

void PackBlock(const bf16* weights, int64_t n, int64_t k, int64_t block, bf16* packed) {
  const int64_t k_padded = RoundUp(k, 32);
  bf16* out = packed + block * 16 * k_padded;
  std::memset(out, 0, static_cast<size_t>(16 * k_padded) * sizeof(bf16));
  for (int64_t lane = 0; lane < 16 && block * 16 + lane < n; ++lane) {
    const bf16* row = weights + (block * 16 + lane) * k;
    for (int64_t i = 0; i < k; ++i) out[(i / 2) * 32 + lane * 2 + (i & 1)] = row[i];
  }
}

}  // namespace baton
