#include "engine/cpu/attention_amx.h"

#include "engine/cpu/amx_tiles.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAmx = TileKernelsOf<TileDot<AmxTiles>>();

}  // namespace baton
