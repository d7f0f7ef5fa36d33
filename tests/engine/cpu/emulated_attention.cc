#include "engine/cpu/attention/attention_amx.h"
#include "engine/cpu/attention/attention_fma.h"
#include "engine/cpu/attention/attention_pairs.h"
#include "engine/cpu/attention/attention_segment.h"
#include "engine/cpu/machine/vdpbf16.h"
#include "tests/engine/cpu/emulated_instructions.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {

constexpr AttentionTileKernels kEmulatedAttentionAvx512 = TileKernelsOf<ChainDot<FmaVector>>();
constexpr AttentionTileKernels kEmulatedAttentionAvx512Bf16 =
    TileKernelsOf<ChainDot<PairVector<Vdpbf16>>>();
constexpr AttentionTileKernels kEmulatedAttentionAmx =
    WithSegments<SegmentDot<EmulatedTiles>>(TileKernelsOnTiles<EmulatedTiles>());
constexpr AttentionTileKernels kWrongOrderAttention =
    TileKernelsOf<ChainDot<PairVector<LowHalfFirst>>>();

}  // namespace baton
