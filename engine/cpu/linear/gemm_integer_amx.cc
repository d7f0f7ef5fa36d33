// Integer linear layers with tdpbsud (int8) and tdpbssd (int4).
#include "engine/cpu/linear/gemm_tile_integers.h"
#include "engine/cpu/linear/gemm_tile_rows_in_l2.h"
#include "engine/cpu/linear/gemm_tile_stream.h"
#include "engine/cpu/linear/gemm_tile_weights_in_l2.h"
#include "engine/cpu/machine/amx_tiles.h"

namespace baton {

constexpr LinearKernelTable kInt8AmxStream = TileStream<AmxTiles, Int8OnTiles>::Table();
constexpr LinearKernelTable kInt8AmxRowsInL2 = TileNest<AmxTiles, Int8OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kInt8AmxWeightsInL2 =
    TileNest<AmxTiles, Int8OnTiles, WeightsInL2>::Table();
constexpr LinearKernelTable kInt4AmxStream = TileStream<AmxTiles, Int4OnTiles>::Table();
constexpr LinearKernelTable kInt4AmxRowsInL2 = TileNest<AmxTiles, Int4OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kInt4AmxWeightsInL2 =
    TileNest<AmxTiles, Int4OnTiles, WeightsInL2>::Table();

}  // namespace baton
