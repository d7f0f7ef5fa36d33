#include "engine/cpu/attention_fma.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx2 = TileKernelsOf<ChainDot<FmaVector>>();

}  // namespace baton
