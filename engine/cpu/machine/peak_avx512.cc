#include "engine/cpu/machine/peak_zmm.h"

namespace baton {
namespace {

inline __m512 Dot(__m512 acc, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, acc); }

// Pairs of 16-bit products, the instruction for int8 weights without VNNI.
inline __m512 DotIntegers(__m512 acc, __m512 a, __m512 b) {
  __asm__ volatile("" : "+v"(b));  // else the compiler would multiply equal operands only once
  const __m512i products = _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b));
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(acc), products));
}

}  // namespace

constexpr PeakKernel kPeakAvx512 = {kZmmChains * 16 * 2, RunZmmPeak<Dot>};
constexpr PeakKernel kPeakIntegerAvx512 = {kZmmChains * 16 * 4, RunZmmPeak<DotIntegers>};

}  // namespace baton
