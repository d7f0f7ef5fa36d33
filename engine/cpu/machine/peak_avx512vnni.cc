#include "engine/cpu/machine/peak_zmm.h"

namespace baton {
namespace {

inline __m512 Dot(__m512 acc, __m512 a, __m512 b) {
  return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(acc), _mm512_castps_si512(a),
                                                 _mm512_castps_si512(b)));
}

}  // namespace

constexpr PeakKernel kPeakIntegerVnni = {kZmmChains * 16 * 8, RunZmmPeak<Dot>};

}  // namespace baton
