// Both chains of the tile order side by side in a zmm, for an instruction that takes pairs of bf16
// and multiplies the high halves first (vdpbf16ps, or its emulation in the tests). Each chain must
// take its k in ascending order; therefore, of every four k, the word of chain e is (hi = k0, lo =
// k2) and the word of chain o is (hi = k1, lo = k3). Used by linear layers (gemm_zmm.h) and
// attention (attention_pairs.h). For kernel units with AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton {
namespace {

// Order of every four k as the words of both chains: k2, k0, k3, k1.
inline __m128i PairOrder() {
  return _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11);
}

// Broadcasts the words of both chains of one row to all lanes.
inline __m512 BroadcastPair(const uint32_t* words) {
  int64_t pair;
  __builtin_memcpy(&pair, words, sizeof pair);
  return _mm512_castsi512_ps(_mm512_set1_epi64(pair));
}

// The words of both chains for half of the lanes, in each 128 bits. The lines hold (k0, k1) and
// (k2, k3) of sixteen lanes.
template <int half>
inline __m512 PairWords(__m512i k01, __m512i k23) {
  return _mm512_castsi512_ps(half == 0 ? _mm512_unpacklo_epi16(k23, k01)
                                       : _mm512_unpackhi_epi16(k23, k01));
}

// e + o for all lanes, in order, from the sums of both halves.
inline __m512 AddPairChains(__m512 lower, __m512 upper) {
  return _mm512_add_ps(_mm512_shuffle_ps(lower, upper, 0x88),
                       _mm512_shuffle_ps(lower, upper, 0xdd));
}

}  // namespace
}  // namespace baton
