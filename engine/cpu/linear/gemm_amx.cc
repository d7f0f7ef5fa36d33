// Linear layers of bf16 on AMX machines: with tdpbf16ps, and one row with FMA.
#include "engine/cpu/linear/gemm_tile_bf16.h"
#include "engine/cpu/linear/gemm_tile_rows_in_l2.h"
#include "engine/cpu/linear/gemm_tile_stream.h"
#include "engine/cpu/linear/gemm_tile_weights_in_l2.h"
#include "engine/cpu/linear/gemm_zmm.h"
#include "engine/cpu/machine/amx_tiles.h"

namespace baton {

constexpr LinearKernelTable kLinearAmxVectors = VectorGemm<AmxFma>::Table();
constexpr LinearKernelTable kLinearAmxStream = TileStream<AmxTiles, Bf16OnTiles>::Table();
constexpr LinearKernelTable kLinearAmxRowsInL2 = TileNest<AmxTiles, Bf16OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kLinearAmxWeightsInL2 =
    TileNest<AmxTiles, Bf16OnTiles, WeightsInL2>::Table();

}  // namespace baton
