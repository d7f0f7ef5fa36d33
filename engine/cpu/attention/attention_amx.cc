#include "engine/cpu/attention/attention_amx.h"

#include "engine/cpu/machine/amx_tiles.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAmx = TileKernelsOf<TileDot<AmxTiles>>();

}  // namespace baton
