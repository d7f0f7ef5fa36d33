#include "engine/cpu/attention_pairs.h"

namespace baton {
namespace {

struct Vdpbf16 {
  static __m512 Dot(__m512 acc, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(acc, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
};

}  // namespace

constexpr AttentionTileKernels kAttentionTileAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<Vdpbf16>>>();

}  // namespace baton
