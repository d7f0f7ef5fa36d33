#include "engine/cpu/attention_pairs.h"
#include "engine/cpu/vdpbf16.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<Vdpbf16>>>();

}  // namespace baton
