// Linear layers with vdpbf16ps: a word is two k as bf16.
#include "engine/cpu/linear/gemm_zmm.h"
#include "engine/cpu/machine/vdpbf16.h"

namespace baton {

constexpr LinearKernelTable kLinearAvx512Bf16 = VectorGemm<Bf16Pairs<Vdpbf16>>::Table();

}  // namespace baton
