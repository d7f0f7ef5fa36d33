#include "engine/cpu/attention/attention_amx.h"

#include "engine/cpu/attention/attention_segment.h"
#include "engine/cpu/machine/amx_tiles.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAmx =
    WithSegments<SegmentDot<AmxTiles>>(TileKernelsOnTiles<AmxTiles>());

}  // namespace baton
