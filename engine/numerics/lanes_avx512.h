// The operations of lanes.h on one zmm, for kernel units. Needs AVX-512 F, BW, DQ, VL.
#pragma once

#include <immintrin.h>

#include "engine/numerics/lanes_scalar.h"

namespace baton {
namespace {

struct LanesAvx512 {
  __m512 v;
};

template <>
inline LanesAvx512 Splat<LanesAvx512>(float value) {
  return {_mm512_set1_ps(value)};
}
template <>
inline LanesAvx512 Load<LanesAvx512>(const float* from) {
  return {_mm512_loadu_ps(from)};
}
template <>
inline LanesAvx512 LoadBf16<LanesAvx512>(const bf16* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}

inline void Store(float* to, LanesAvx512 x) { _mm512_storeu_ps(to, x.v); }

// The bf16 of each lane in the low half of its 32 bits.
inline __m512i Bf16Bits(LanesAvx512 x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(rounded, is_nan,
                               _mm512_set1_epi32(static_cast<int>(kCanonicalNan >> 16)));
}
inline void StoreBf16(bf16* to, LanesAvx512 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(Bf16Bits(x)));
}
inline void StoreInt8(int8_t* to, LanesAvx512 low, LanesAvx512 high) {
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_inserti128_si256(_mm256_castsi128_si256(bytes),
                                              _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high.v)), 1));
}
inline LanesAvx512 RoundBf16(LanesAvx512 x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(Bf16Bits(x), 16))};
}
inline LanesAvx512 CanonicalizeNan(LanesAvx512 x) {
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i nan = _mm512_set1_epi32(static_cast<int>(kCanonicalNan));
  return {_mm512_mask_mov_ps(x.v, is_nan, _mm512_castsi512_ps(nan))};
}
inline LanesAvx512 Add(LanesAvx512 a, LanesAvx512 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline LanesAvx512 Sub(LanesAvx512 a, LanesAvx512 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline LanesAvx512 Mul(LanesAvx512 a, LanesAvx512 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline LanesAvx512 Div(LanesAvx512 a, LanesAvx512 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline LanesAvx512 Fma(LanesAvx512 a, LanesAvx512 b, LanesAvx512 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline LanesAvx512 Max(LanesAvx512 a, LanesAvx512 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline LanesAvx512 Min(LanesAvx512 a, LanesAvx512 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline LanesAvx512 AddExponent(LanesAvx512 p, LanesAvx512 m) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(m.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), shifted))};
}
inline LanesAvx512 ZeroBelow(LanesAvx512 x, LanesAvx512 limit, LanesAvx512 y) {
  const __mmask16 below = _mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ);
  return {_mm512_mask_mov_ps(y.v, below, _mm512_setzero_ps())};
}

}  // namespace
}  // namespace baton
