#include "engine/cpu/gemm_tile.h"
#include "engine/cpu/gemm_zmm.h"
#include "engine/cpu/vdpbf16.h"
#include "engine/emulated_instructions.h"
#include "engine/emulated_kernels.h"

namespace baton {

constexpr LinearKernelTable kEmulatedAvx512 = VectorGemm<Avx512Fma>::Table();
constexpr LinearKernelTable kEmulatedAvx512Bf16 = VectorGemm<Bf16Pairs<Vdpbf16>>::Table();
constexpr LinearKernelTable kWrongOrder = VectorGemm<Bf16Pairs<LowHalfFirst>>::Table();
constexpr LinearKernelTable kEmulatedAmx = TileGemm<EmulatedTiles>::Table();

}  // namespace baton
