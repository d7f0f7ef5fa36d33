#include "bench/plain_chain.h"
#include "engine/cpu/gemm_zmm.h"
#include "engine/cpu/vdpbf16.h"

namespace baton {

const LinearKernelTable kPlainAvx512Bf16 = VectorGemm<Bf16Pairs<Vdpbf16>, PlainChain>::Table();

}  // namespace baton
