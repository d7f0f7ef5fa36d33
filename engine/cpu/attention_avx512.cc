#include "engine/cpu/attention_fma.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx512 = TileKernelsOf<ChainDot<FmaVector>>();

}  // namespace baton
