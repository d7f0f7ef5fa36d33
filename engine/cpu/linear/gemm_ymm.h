// The policy of VectorGemm on ymm registers with AVX2 FMA: a word is one k as fp32.
#pragma once

#include "engine/cpu/linear/gemm_vector.h"

namespace baton {
namespace {

struct YmmRegisters {
  using Vec = __m256;
  static constexpr int kLanes = 8, kRegisters = 16;
  static constexpr int LongStreams(int64_t /*k*/) { return 0; }

  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec LoadAcc(const float* from) { return _mm256_load_ps(from); }
  static void StoreAcc(float* to, Vec x) { _mm256_store_ps(to, x); }
  static Vec LoadWords(const uint32_t* from) {
    return _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void StoreWords(uint32_t* to, Vec x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_castps_si256(x));
  }
  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm256_fmadd_ps(a, b, acc); }
  static __m256i LoadPairs(const bf16* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
};

// Both chains side by side: the words of a row are its k in order, and a line of packed weights,
// pairs of k of sixteen outputs, is widened from the low and the high half of each 128 bits.
struct Avx2Fma : YmmRegisters {
  static constexpr int kPasses = 1;
  static constexpr int kSteps = 16;
  static constexpr int64_t PrefetchBytes(int /*streams*/) { return 0; }
  static constexpr int kDirectRows = 20, kDirectTileRows = 6, kDirectTilesRows = 6;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int DirectBlocks(int64_t /*k*/) { return 4; }
  static constexpr int DirectVecs(int /*rows*/) { return 16; }
  static constexpr int VecsAtOnce(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }
  static constexpr int kTileRows = 3, kTileVecs = 4;
  static constexpr int64_t kBlockGroups = 4;  // 8 KiB of words; 256 KiB for 512 rows, half an L2

  static Vec Broadcast(const uint32_t* from) {
    int64_t pair;
    __builtin_memcpy(&pair, from, sizeof(pair));
    return _mm256_castsi256_ps(_mm256_set1_epi64x(pair));
  }
  static Vec Product(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec Weights(const bf16* block, int64_t step, int v, int /*pass*/) {
    const __m256i pairs = LoadPairs(block + step * 32 + v / 2 * 16), zero = _mm256_setzero_si256();
    return _mm256_castsi256_ps(v % 2 == 0 ? _mm256_unpacklo_epi16(zero, pairs)
                                          : _mm256_unpackhi_epi16(zero, pairs));
  }
  static Vec AddChains(Vec lower, Vec upper) {
    return Add(_mm256_shuffle_ps(lower, upper, 0x88), _mm256_shuffle_ps(lower, upper, 0xdd));
  }
  static void PackGroup(const bf16* x, uint32_t* words, uint32_t* /*second*/) {
    for (int64_t i = 0; i < 32; i += 8) {
      const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i),
                          _mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
    }
  }
};

}  // namespace
}  // namespace baton
