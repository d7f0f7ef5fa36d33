// Integer linear layers with tdpbsud.
#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/gemm_integer_tile.h"

namespace baton {

constexpr LinearKernelTable kInt8Amx = IntegerTileGemm<AmxTiles, Int8Weights>::Table();
constexpr LinearKernelTable kInt4Amx = IntegerTileGemm<AmxTiles, Int4Weights>::Table();

}  // namespace baton
