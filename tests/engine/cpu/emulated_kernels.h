// Kernels of the paths beyond AVX2 whose instructions are emulated bit by bit (zmm_on_ymm.h,
// emulated_instructions.h), so that data movement, order and edges of all of them are tested on
// every machine.
#pragma once

#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/linear/linear_job.h"

namespace baton {

struct ElementwiseRows;

extern const LinearKernelTable kEmulatedAvx512, kEmulatedAvx512Bf16, kEmulatedAmxVectors;
extern const LinearKernelTable kEmulatedAmxStream, kEmulatedAmxRowsInL2, kEmulatedAmxWeightsInL2;
extern const LinearKernelTable kEmulatedInt8Avx512, kEmulatedInt4Avx512;
extern const LinearKernelTable kEmulatedInt8Vnni, kEmulatedInt4Vnni;
extern const LinearKernelTable kEmulatedInt8VnniZen, kEmulatedInt4VnniZen;
extern const LinearKernelTable kEmulatedInt8AmxStream, kEmulatedInt8AmxRowsInL2;
extern const LinearKernelTable kEmulatedInt8AmxWeightsInL2;
extern const LinearKernelTable kEmulatedInt4AmxStream, kEmulatedInt4AmxRowsInL2;
extern const LinearKernelTable kEmulatedInt4AmxWeightsInL2;
extern const AttentionTileKernels kEmulatedAttentionAvx512;
extern const AttentionTileKernels kEmulatedAttentionAvx512Bf16;
extern const AttentionTileKernels kEmulatedAttentionAmx;
const ElementwiseRows& EmulatedElementwiseRows();

// vdpbf16ps with its two products exchanged: a different order of sums, which tests and the
// self-test must detect.
extern const LinearKernelTable kWrongOrder;
extern const AttentionTileKernels kWrongOrderAttention;

}  // namespace baton
