// Integers on ymm registers (AVX2) for IntegerGemm.
#pragma once

#include "engine/cpu/linear/gemm_integer.h"

namespace baton {
namespace {

struct YmmIntegers {
  using Vec = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kSums = 12;
  static constexpr bool kStepInShorts = false, kOneStream = false;
  static constexpr int kDirectRows = 36, kDirectTileRows = 6, kDirectTilesRows = 6;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int kDirectBlocks = 4;
  static constexpr int DirectTileBlocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
  static constexpr int kTileRows = 6, kTileBlocks = 1;
  // Four parallel streams are faster without prefetch, fewer streams with prefetch.
  static constexpr int64_t PrefetchBytes(int streams) { return streams >= 4 ? 0 : 4096 / streams; }

  static Vec Load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static void Store(void* to, Vec x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
  static void Copy32(void* to, const void* from) { Store(to, Load(from)); }
  static Vec Splat(int32_t x) { return _mm256_set1_epi32(x); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
  static Vec LowHalves(Vec x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static Vec HighHalves(Vec x) { return LowHalves(_mm256_srli_epi32(x, 4)); }

  static __m256 Floats(const void* from) { return _mm256_castsi256_ps(Load(from)); }
  static void FoldGroup(Vec sum, const char* scales, const float* before, float* after) {
    _mm256_storeu_ps(
        after, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), Floats(scales), _mm256_loadu_ps(before)));
  }
  template <bool kIsGrouped>
  static void ScaleRow(float* acc, const char* scales, float row) {
    const __m256 row_scale = _mm256_set1_ps(row);
    const __m256 y = kIsGrouped ? _mm256_mul_ps(Floats(acc), row_scale)
                                : _mm256_mul_ps(_mm256_cvtepi32_ps(Load(acc)),
                                                _mm256_mul_ps(row_scale, Floats(scales)));
    _mm256_storeu_ps(acc, y);
  }
};

// A word is two shorts: products of stored bytes up to 255 with signed bytes would saturate
// vpmaddubsw. Word 0 has k 0 and 2 of a quad, word 1 k 1 and 3.
struct YmmShorts : YmmIntegers {
  static constexpr int kWords = 2;
  static Vec Word(Vec bytes, int word) {
    return word == 0 ? _mm256_and_si256(bytes, _mm256_set1_epi16(255))
                     : _mm256_srli_epi16(bytes, 8);
  }
  static Vec Dot(Vec acc, Vec weights, Vec x) {
    // Inline assembly for the sums: from intrinsics g++ 12 makes trees of products and runs out of
    // registers.
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(_mm256_madd_epi16(weights, x)));
    return acc;
  }
  static void PackStep(const int8_t* values, int32_t* words) {
    const Vec bytes = Load(values);
    Store(words, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    Store(words + 8, _mm256_srai_epi16(bytes, 8));
  }
};

// A word is four bytes; of stored values up to 15 a whole step fits in shorts: per short eight sums
// of two products, 8 * 2 * 15 * 127 < 2^15.
struct YmmBytes : YmmIntegers {
  static constexpr int kWords = 1;
  static constexpr bool kStepInShorts = true;
  static constexpr int kDirectTileRows = 5,
                       kDirectTilesRows = 5;  // the mask of halves takes a register
  static Vec Word(Vec bytes, int /*word*/) { return bytes; }
  static Vec Multiply(Vec weights, Vec x) { return _mm256_maddubs_epi16(weights, x); }
  static Vec Dot(Vec shorts, Vec weights, Vec x) {
    __asm__("vpaddw %1, %0, %0" : "+x"(shorts) : "x"(Multiply(weights, x)));
    return shorts;
  }
  static Vec Widen(Vec shorts) { return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)); }
  static void PackStep(const int8_t* values, int32_t* words) { Store(words, Load(values)); }
};

}  // namespace
}  // namespace baton
