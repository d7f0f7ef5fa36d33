// The definition of a linear layer (docs/NUMERICS.md N1) in scalar code, one output at a time:
// every kernel must equal it bit by bit. For the self-test at start and for tests. Any thread that
// has the MXCSR of the compute pool (threads/mxcsr.h); needs FMA (Isa::kAvx2's machines).
#pragma once

#include "engine/cpu/linear/linear_job.h"

namespace baton {

// Takes the fields of the job as a kernel does, except that x holds the rows themselves, in order
// and without a norm to take: x_rows, norm, packed_rows, n_blocks and members are not used.
void RunLinearReference(const LinearJob& job);

}  // namespace baton
