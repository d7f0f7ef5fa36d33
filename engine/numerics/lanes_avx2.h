// The operations of lanes.h on two ymm (lo = lanes 0..7), for kernel units. Needs AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include "engine/numerics/lanes_scalar.h"

namespace baton {
namespace {

struct LanesAvx2 {
  __m256 lo, hi;
};

template <>
inline LanesAvx2 Splat<LanesAvx2>(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
template <>
inline LanesAvx2 Load<LanesAvx2>(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

inline __m256 WidenBf16(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
template <>
inline LanesAvx2 LoadBf16<LanesAvx2>(const bf16* from) {
  return {WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
          WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
}

inline void Store(float* to, LanesAvx2 x) {
  _mm256_storeu_ps(to, x.lo);
  _mm256_storeu_ps(to + 8, x.hi);
}

// The bf16 of each lane in the low half of its 32 bits.
inline __m256i Bf16Bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(static_cast<int>(kCanonicalNan >> 16)),
                            is_nan);
}
inline void StoreBf16(bf16* to, LanesAvx2 x) {
  const __m256i packed = _mm256_packus_epi32(Bf16Bits(x.lo), Bf16Bits(x.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void StoreInt8(int8_t* to, LanesAvx2 low, LanesAvx2 high) {
  const auto words = [](LanesAvx2 x) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
  };
  const __m256i halves =
      _mm256_packs_epi16(words(low), words(high));  // fours of values: 0 2 4 6 | 1 3 5 7
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
inline LanesAvx2 RoundBf16(LanesAvx2 x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(Bf16Bits(x.lo), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(Bf16Bits(x.hi), 16))};
}
inline __m256 CanonicalizeNan(__m256 x) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kCanonicalNan)));
  return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
inline LanesAvx2 CanonicalizeNan(LanesAvx2 x) {
  return {CanonicalizeNan(x.lo), CanonicalizeNan(x.hi)};
}
inline LanesAvx2 Add(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline LanesAvx2 Sub(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline LanesAvx2 Mul(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline LanesAvx2 Div(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline LanesAvx2 Fma(LanesAvx2 a, LanesAvx2 b, LanesAvx2 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline LanesAvx2 Max(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline LanesAvx2 Min(LanesAvx2 a, LanesAvx2 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline __m256 AddExponent(__m256 p, __m256 m) {
  const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(m), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shifted));
}
inline LanesAvx2 AddExponent(LanesAvx2 p, LanesAvx2 m) {
  return {AddExponent(p.lo, m.lo), AddExponent(p.hi, m.hi)};
}
inline LanesAvx2 ZeroBelow(LanesAvx2 x, LanesAvx2 limit, LanesAvx2 y) {
  return {_mm256_andnot_ps(_mm256_cmp_ps(x.lo, limit.lo, _CMP_LT_OQ), y.lo),
          _mm256_andnot_ps(_mm256_cmp_ps(x.hi, limit.hi, _CMP_LT_OQ), y.hi)};
}

}  // namespace
}  // namespace baton
