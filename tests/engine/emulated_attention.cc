#include "engine/cpu/attention_amx.h"
#include "engine/cpu/attention_fma.h"
#include "engine/cpu/attention_pairs.h"
#include "engine/cpu/vdpbf16.h"
#include "tests/engine/emulated_instructions.h"
#include "tests/engine/emulated_kernels.h"

namespace baton {

constexpr AttentionTileKernels kEmulatedAttentionAvx512 = TileKernelsOf<ChainDot<FmaVector>>();
constexpr AttentionTileKernels kEmulatedAttentionAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<Vdpbf16>>>();
constexpr AttentionTileKernels kEmulatedAttentionAmx = TileKernelsOf<TileDot<EmulatedTiles>>();
constexpr AttentionTileKernels kWrongOrderAttention =
    TileKernelsOf<ChainDot<PairVector<LowHalfFirst>>>();

}  // namespace baton
