#include "bench/plain_chain.h"
#include "engine/cpu/gemm_ymm.h"

namespace baton {

const LinearKernelTable kPlainAvx2 = VectorGemm<Avx2Fma, PlainChain>::Table();

}  // namespace baton
