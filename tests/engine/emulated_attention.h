// Attention kernels whose instructions are emulated (emulated_instructions.h), so that the
// vdpbf16ps and AMX paths are tested on machines that lack them. They run on any machine with
// AVX-512.
#pragma once

#include "engine/cpu/attention_tile.h"

namespace baton {

extern const AttentionTileKernels kEmulatedAttentionAvx512Bf16;
extern const AttentionTileKernels kEmulatedAttentionAmx;
// vdpbf16ps with its two products exchanged: sums in another order, which the tests must notice.
extern const AttentionTileKernels kWrongOrderAttention;

}  // namespace baton
