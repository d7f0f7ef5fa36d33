#include "bench/plain_chain.h"
#include "engine/cpu/gemm_zmm.h"

namespace baton {

const LinearKernelTable kPlainAvx512 = VectorGemm<Avx512Fma, PlainChain>::Table();

}  // namespace baton
