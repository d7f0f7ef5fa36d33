// The policy of VectorGemm on ymm registers with AVX2 FMA: a word is one k as fp32, two ymm per
// 16-output block.
#pragma once

#include "engine/cpu/gemm_vector.h"

namespace baton {
namespace {

struct Avx2Fma {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kSteps = 16;
  static constexpr int64_t kPrefetchBytes = 0;
  static constexpr int kDirectRows = 20, kDirectTileRows = 6, kDirectTilesRows = 4;
  static constexpr int kDirectBlocks = 4;
  static constexpr int DirectVecs(int rows) { return rows == 1 ? 4 : 2; }
  static constexpr int kTileRows = 3, kTileVecs = 2;
  static constexpr int kBothSums = 12;
  static constexpr int64_t kBlockGroups = 4;  // 8 KiB of words; of 512 rows 256 KiB, half an L2

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
  static Vec Broadcast(const uint32_t* from) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*from)));
  }
  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm256_fmadd_ps(a, b, acc); }
  static Vec Weights(const bf16* block, int64_t step, int half, int chain) {
    const __m256i line =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(block + step * 32 + half * 16));
    return _mm256_castsi256_ps(
        chain == 0 ? _mm256_slli_epi32(line, 16)
                   : _mm256_and_si256(line, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    for (int64_t half = 0; half < 2; ++half) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x) + half);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(e) + half, _mm256_slli_epi32(pairs, 16));
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(o) + half,
          _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    }
  }
};

}  // namespace
}  // namespace baton
