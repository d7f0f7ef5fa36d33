#include "engine/cpu/attention/attention_fma.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx2 = TileKernelsOf<ChainDot<FmaVector>>();

}  // namespace baton
