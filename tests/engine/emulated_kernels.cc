#include "engine/emulated_kernels.h"

#include "engine/cpu/gemm_integer_tile.h"
#include "engine/cpu/gemm_tile.h"
#include "engine/cpu/gemm_zmm.h"
#include "engine/emulated_instructions.h"

namespace baton {

constexpr LinearKernelTable kEmulatedAvx512Bf16 = VectorGemm<Bf16Pairs<EmulatedVdpbf16>>::Table();
constexpr LinearKernelTable kEmulatedAmx = TileGemm<EmulatedTiles>::Table();
constexpr LinearKernelTable kEmulatedInt8Amx = IntegerTileGemm<EmulatedTiles, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Amx = IntegerTileGemm<EmulatedTiles, Int4Weights>::Table();
constexpr LinearKernelTable kWrongOrder = VectorGemm<Bf16Pairs<LowHalfFirst>>::Table();

}  // namespace baton
