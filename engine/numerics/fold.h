// Reductions of numerics v1 (docs/NUMERICS.md N4 and Attention) over the sixteen virtual lanes:
// lane i takes the elements i, i + 16, ...; then the lanes fold 8, 4, 2, 1 (lane i += lane i + 8,
// ...). Part of the vocabulary of lanes.h, with the same rules about units and MXCSR.
#pragma once

#include "engine/numerics/lanes.h"

namespace baton {
namespace {

inline constexpr int kLanes = 16;

// The definition, on an array of sixteen lanes.
[[maybe_unused]] inline float FoldSum(const float* lanes) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = lanes[i];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] = x[i] + x[i + width];
  return x[0];
}

#if defined(__AVX2__) && defined(__FMA__)
struct SumOf {
  static __m256 Of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
#if defined(__AVX512F__)
  static __m512 Of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
#endif
};
struct MaxOf {
  static __m256 Of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
#if defined(__AVX512F__)
  static __m512 Of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
#endif
};

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

// FoldSum(x), FoldMax(x): one vector. FoldSums(rows), FoldMaxima(rows): lane r is the fold of
// rows[r]. KeepFirst(x, n, other): lanes from n on are replaced by those of other.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
inline float FoldSum(LanesAvx512 x) {
  return FoldSum(_mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)));
}
inline float FoldMax(LanesAvx512 x) {
  return FoldMax(_mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)));
}
// Folds vectors two by two, half a vector each, so that sixteen vectors end as the lanes of one.
template <class Op>
inline LanesAvx512 FoldAll(const LanesAvx512 (&rows)[kLanes]) {
  const auto fold8 = [](__m512 a, __m512 b) {
    return Op::Of(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const auto fold4 = [](__m512 a, __m512 b) {
    return Op::Of(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  const auto fold2 = [](__m512 a, __m512 b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return Op::Of(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                  _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  };
  const auto of_four = [&](int r) {
    return fold4(fold8(rows[r].v, rows[r + 4].v), fold8(rows[r + 8].v, rows[r + 12].v));
  };
  const __m512 low = fold2(of_four(0), of_four(1)), high = fold2(of_four(2), of_four(3));
  return {Op::Of(_mm512_shuffle_ps(low, high, 0x88), _mm512_shuffle_ps(low, high, 0xdd))};
}
inline LanesAvx512 FoldSums(const LanesAvx512 (&rows)[kLanes]) { return FoldAll<SumOf>(rows); }
inline LanesAvx512 FoldMaxima(const LanesAvx512 (&rows)[kLanes]) { return FoldAll<MaxOf>(rows); }
inline LanesAvx512 KeepFirst(LanesAvx512 x, int n, LanesAvx512 other) {
  return {_mm512_mask_mov_ps(other.v, static_cast<__mmask16>((1u << n) - 1u), x.v)};
}
#elif defined(__AVX2__) && defined(__FMA__)
inline float FoldSum(LanesAvx2 x) { return FoldSum(_mm256_add_ps(x.lo, x.hi)); }
inline float FoldMax(LanesAvx2 x) { return FoldMax(_mm256_max_ps(x.lo, x.hi)); }
template <class Op>
inline __m256 FoldEight(const LanesAvx2* rows) {
  const auto fold4 = [](__m256 a, __m256 b) {
    return Op::Of(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto fold2 = [](__m256 a, __m256 b) {
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return Op::Of(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                  _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  };
  const auto of_two = [&](int r) {
    return fold4(Op::Of(rows[r].lo, rows[r].hi), Op::Of(rows[r + 4].lo, rows[r + 4].hi));
  };
  const __m256 low = fold2(of_two(0), of_two(1)), high = fold2(of_two(2), of_two(3));
  return Op::Of(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd));
}
inline LanesAvx2 FoldSums(const LanesAvx2 (&rows)[kLanes]) {
  return {FoldEight<SumOf>(rows), FoldEight<SumOf>(rows + 8)};
}
inline LanesAvx2 FoldMaxima(const LanesAvx2 (&rows)[kLanes]) {
  return {FoldEight<MaxOf>(rows), FoldEight<MaxOf>(rows + 8)};
}
inline LanesAvx2 KeepFirst(LanesAvx2 x, int n, LanesAvx2 other) {
  const __m256i count = _mm256_set1_epi32(n);
  const __m256i low = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i high = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  return {_mm256_blendv_ps(other.lo, x.lo, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other.hi, x.hi, _mm256_castsi256_ps(high))};
}
#endif

}  // namespace
}  // namespace baton
