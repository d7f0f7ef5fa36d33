#include "engine/cpu/roof_zmm.h"

namespace baton {
namespace {

inline __m512 Dot(__m512 acc, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, acc); }

}  // namespace

constexpr RoofKernel kRoofAvx512 = {kZmmChains * 16 * 2, RunZmmRoof<Dot>};

}  // namespace baton
