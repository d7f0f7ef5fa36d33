#include "bench/kernels/plain_chain.h"
#include "engine/cpu/linear/gemm_zmm.h"

namespace baton {

const LinearKernelTable kPlainAvx512 = VectorGemm<Avx512Fma, PlainChain>::Table();

}  // namespace baton
