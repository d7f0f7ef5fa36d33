// Groups of a page that are not what the chains read, made into it: int8 numbers times their
// scales, rounded to bf16; and values that lie in keys. Once for every path, with the same bits.
// For kernel units.
#pragma once

#include "engine/cpu/attention_tile.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

inline constexpr int kScaleBytes = 4 * kGroupKeys;  // in front of an int8 group

// A line of a group: word i = bf16(even[i] * even_scale[i]) below bf16(odd[i] * odd_scale[i]).
#if defined(__AVX512F__)
using LineWords = __m512i;

// bf16 in the upper half of each word, the lower half undefined. The product is no NaN unless the
// scale is, which nothing hides.
inline __m512i RoundedProduct(const int8_t* numbers, Lanes scale) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
  const __m512i bits =
      _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale.v));
  const __m512i half = _mm512_mask_mov_epi32(
      _mm512_set1_epi32(0x7fff), _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)),
      _mm512_set1_epi32(0x8000));
  return _mm512_add_epi32(bits, half);
}

inline void ExpandLine(const int8_t* even, Lanes even_scale, const int8_t* odd, Lanes odd_scale,
                       bf16* line) {
  const __m512i low = _mm512_srli_epi32(RoundedProduct(even, even_scale), 16);
  _mm512_storeu_si512(line,
                      _mm512_mask_mov_epi16(RoundedProduct(odd, odd_scale), 0x55555555u, low));
}
#else
inline __m256i RoundedProduct(const int8_t* numbers, __m256 scale) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(numbers));
  const __m256i bits =
      _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), scale));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

inline void ExpandHalfLine(const int8_t* even, __m256 even_scale, const int8_t* odd,
                           __m256 odd_scale, bf16* line) {
  const __m256i low = _mm256_srli_epi32(RoundedProduct(even, even_scale), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(line),
                      _mm256_blend_epi16(RoundedProduct(odd, odd_scale), low, 0x55));
}

inline void ExpandLine(const int8_t* even, Lanes even_scale, const int8_t* odd, Lanes odd_scale,
                       bf16* line) {
  ExpandHalfLine(even, even_scale.lo, odd, odd_scale.lo, line);
  ExpandHalfLine(even + 8, even_scale.hi, odd + 8, odd_scale.hi, line + 16);
}
#endif

inline const int8_t* Numbers(const void* group) {
  return static_cast<const int8_t*>(group) + kScaleBytes;
}

void ExpandKeys(const void* group, int key_dim, bf16* k) {
  const int8_t* const numbers = Numbers(group);
  const Lanes scale = Load<Lanes>(static_cast<const float*>(group));
  for (int d = 0; d < key_dim; d += 2)
    ExpandLine(numbers + d * kLanes, scale, numbers + (d + 1) * kLanes, scale, k + d * kLanes);
  for (int d = key_dim; d % 32 != 0; ++d)
    for (int i = 0; i < kLanes; ++i) k[d * kLanes + i] = 0;
}

void ExpandValues(const void* group, int value_dim, bf16* v) {
  const float* const scales = static_cast<const float*>(group);
  const int8_t* row = Numbers(group);
  for (int key = 0; key < kGroupKeys; key += 2, row += 2 * value_dim) {
    const Lanes even = Splat<Lanes>(scales[key]), odd = Splat<Lanes>(scales[key + 1]);
    for (int d = 0; d < value_dim; d += kLanes, v += 2 * kLanes)
      ExpandLine(row + d, even, row + value_dim + d, odd, v);
  }
}

// A K line has of each pair of keys the words (k0d0, k0d1), (k1d0, k1d1), where a V line wants
// (k0d0, k1d0), (k0d1, k1d1): the middle halves change places, and then the eight pairs go to the
// eight V lines.
void ValuesOfKeys(const bf16* k, int value_dim, bf16* v) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int d = 0; d < value_dim; d += 2, k += 2 * kLanes) {
    alignas(32) uint64_t pairs[kGroupKeys / 2];
    for (int half = 0; half < 2; ++half) {
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(k) + half);
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs) + half,
                         _mm256_shuffle_epi8(words, order));
    }
    for (int pair = 0; pair < kGroupKeys / 2; ++pair)
      __builtin_memcpy(v + (pair * value_dim + d) * 2, &pairs[pair], sizeof(uint64_t));
  }
}

}  // namespace
}  // namespace baton
