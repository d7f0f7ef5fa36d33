#include "engine/cpu/machine/peak_zmm.h"

namespace baton {
namespace {

inline __m512 Dot(__m512 acc, __m512 a, __m512 b) {
  return _mm512_dpbf16_ps(acc, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
}

}  // namespace

constexpr PeakKernel kPeakAvx512Bf16 = {kZmmChains * 16 * 4, RunZmmPeak<Dot>};

}  // namespace baton
