// The definition of a linear layer in scalar code, one output at a time: every kernel must equal it
// bit by bit. For the self-test at start and for tests. Needs FMA (Isa::kAvx2's machines) and the
// MXCSR of the compute pool on the calling thread.
#pragma once

#include "engine/cpu/linear/linear_job.h"

namespace baton {

// Fields of the job as for a kernel, except that packed_rows and n_blocks are not used, and that x
// holds the rows themselves: no norm.
void RunLinearReference(const LinearJob& job);

}  // namespace baton
