#include "engine/cpu/linear/gemm_tile_bf16.h"
#include "engine/cpu/linear/gemm_tile_rows_in_l2.h"
#include "engine/cpu/linear/gemm_tile_stream.h"
#include "engine/cpu/linear/gemm_tile_weights_in_l2.h"
#include "engine/cpu/linear/gemm_zmm.h"
#include "engine/cpu/machine/vdpbf16.h"
#include "tests/engine/cpu/emulated_instructions.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {

constexpr LinearKernelTable kEmulatedAvx512 = VectorGemm<Avx512Fma>::Table();
constexpr LinearKernelTable kEmulatedAmxVectors = VectorGemm<AmxFma>::Table();
constexpr LinearKernelTable kEmulatedAvx512Bf16 = VectorGemm<Bf16Pairs<Vdpbf16>>::Table();
constexpr LinearKernelTable kWrongOrder = VectorGemm<Bf16Pairs<LowHalfFirst>>::Table();
constexpr LinearKernelTable kEmulatedAmxStream = TileStream<EmulatedTiles, Bf16OnTiles>::Table();
constexpr LinearKernelTable kEmulatedAmxRowsInL2 =
    TileNest<EmulatedTiles, Bf16OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kEmulatedAmxWeightsInL2 =
    TileNest<EmulatedTiles, Bf16OnTiles, WeightsInL2>::Table();

}  // namespace baton
