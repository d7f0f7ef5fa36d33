// Linear layers with AVX2 FMA.
#include "engine/cpu/linear/gemm_ymm.h"

namespace baton {

constexpr LinearKernelTable kLinearAvx2 = VectorGemm<Avx2Fma>::Table();

}  // namespace baton
