// Integer linear layers with AVX2.
#include "engine/cpu/linear/gemm_integer_ymm.h"

namespace baton {

constexpr LinearKernelTable kInt8Avx2 = IntegerGemm<YmmShorts, Int8Weights>::Table();
constexpr LinearKernelTable kInt4Avx2 = IntegerGemm<YmmBytes, Int4Weights>::Table();

}  // namespace baton
