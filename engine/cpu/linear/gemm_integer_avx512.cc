// Integer linear layers with AVX-512 that lacks VNNI.
#include "engine/cpu/linear/gemm_integer_zmm.h"

namespace baton {

constexpr LinearKernelTable kInt8Avx512 = IntegerGemm<ZmmShorts, Int8Weights>::Table();
constexpr LinearKernelTable kInt4Avx512 = IntegerGemm<ZmmBytes, Int4Weights>::Table();

}  // namespace baton
