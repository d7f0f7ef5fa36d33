#include "engine/cpu/attention/attention_fma.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx512 = TileKernelsOf<ChainDot<FmaVector>>();

}  // namespace baton
