// Linear layers with tdpbf16ps.
#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/gemm_tile.h"

namespace baton {

constexpr LinearKernelTable kLinearAmx = TileGemm<AmxTiles>::Table();

}  // namespace baton
