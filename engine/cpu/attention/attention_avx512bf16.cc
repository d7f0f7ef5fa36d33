#include "engine/cpu/attention/attention_pairs.h"
#include "engine/cpu/machine/vdpbf16.h"

namespace baton {

constexpr AttentionTileKernels kAttentionTileAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<Vdpbf16>>>();

}  // namespace baton
