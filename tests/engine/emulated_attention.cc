#include "engine/emulated_attention.h"

#include "engine/cpu/attention_amx.h"
#include "engine/cpu/attention_pairs.h"
#include "engine/emulated_instructions.h"

namespace baton {

constexpr AttentionTileKernels kEmulatedAttentionAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<EmulatedVdpbf16>>>();
constexpr AttentionTileKernels kEmulatedAttentionAmx = TileKernelsOf<TileDot<EmulatedTiles>>();
constexpr AttentionTileKernels kWrongOrderAttention =
    TileKernelsOf<ChainDot<PairVector<LowHalfFirst>>>();

}  // namespace baton
