#include "engine/cpu/gemm_integer_tile.h"
#include "engine/emulated_instructions.h"
#include "engine/emulated_kernels.h"

namespace baton {

using Vnni = EmulatedVnni<ZmmBytes>;

constexpr LinearKernelTable kEmulatedInt8Avx512 = IntegerGemm<ZmmShorts, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Avx512 = IntegerGemm<ZmmBytes, Int4Weights>::Table();
constexpr LinearKernelTable kEmulatedInt8Vnni = IntegerGemm<Vnni, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Vnni = IntegerGemm<Vnni, Int4Weights>::Table();
constexpr LinearKernelTable kEmulatedInt8Amx = IntegerTileGemm<EmulatedTiles, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Amx = IntegerTileGemm<EmulatedTiles, Int4Weights>::Table();

}  // namespace baton
