// Linear layers with AVX-512F FMA: a word is one k as fp32, one zmm per 16-output block.
#include "engine/cpu/linear/gemm_zmm.h"

namespace baton {

constexpr LinearKernelTable kLinearAvx512 = VectorGemm<Avx512Fma>::Table();

}  // namespace baton
