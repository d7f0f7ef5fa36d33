// Reductions of numerics v1 over the sixteen virtual lanes: lane i takes the elements i, i + 16,
// ...; then the lanes fold 8, 4, 2, 1 (lane i += lane i + 8, ...). Part of the vocabulary of
// lanes.h, with the same rules about units.
#pragma once

#include "engine/numerics/lanes.h"

namespace baton {
namespace {

inline constexpr int kLanes = 16;

// The definition, on an array of sixteen.
[[maybe_unused]] inline float FoldSum(const float* lanes) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = lanes[i];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] = x[i] + x[i + width];
  return x[0];
}

#if defined(__AVX2__) && defined(__FMA__)
inline float FoldSum(__m256 x8) {
  const __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}
inline float FoldMax(__m256 x8) {
  const __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}
#endif

// FoldSum(x), FoldMax(x); KeepFirst(x, n, other): lanes n and up replaced by other's; FirstLane(x).
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
inline float FoldSum(LanesAvx512 x) {
  return FoldSum(_mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)));
}
inline float FoldMax(LanesAvx512 x) {
  return FoldMax(_mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)));
}
inline LanesAvx512 KeepFirst(LanesAvx512 x, int n, LanesAvx512 other) {
  return {_mm512_mask_mov_ps(other.v, static_cast<__mmask16>((1u << n) - 1u), x.v)};
}
inline float FirstLane(LanesAvx512 x) { return _mm512_cvtss_f32(x.v); }
#elif defined(__AVX2__) && defined(__FMA__)
inline float FoldSum(LanesAvx2 x) { return FoldSum(_mm256_add_ps(x.lo, x.hi)); }
inline float FoldMax(LanesAvx2 x) { return FoldMax(_mm256_max_ps(x.lo, x.hi)); }
inline LanesAvx2 KeepFirst(LanesAvx2 x, int n, LanesAvx2 other) {
  const __m256i count = _mm256_set1_epi32(n);
  const __m256i low = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i high = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  return {_mm256_blendv_ps(other.lo, x.lo, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other.hi, x.hi, _mm256_castsi256_ps(high))};
}
inline float FirstLane(LanesAvx2 x) { return _mm256_cvtss_f32(x.lo); }
#endif

}  // namespace
}  // namespace baton
