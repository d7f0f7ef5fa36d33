// Kernels of the linear layers whose instructions are emulated bit by bit from their published
// semantics, so that the data movement, order and edges of the vdpbf16ps and AMX kernels are tested
// on machines that lack the instructions. They run on any machine with AVX-512.
#pragma once

#include "engine/cpu/linear_job.h"

namespace baton {

extern const LinearKernelTable kEmulatedAvx512Bf16;
extern const LinearKernelTable kEmulatedAmx;
extern const LinearKernelTable kEmulatedInt8Amx, kEmulatedInt4Amx;
// vdpbf16ps with its two products exchanged: sums in another order, which a self-test must notice.
extern const LinearKernelTable kWrongOrder;

}  // namespace baton
