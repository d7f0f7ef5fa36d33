// The words of CUDA C++ that kernels are written in, for the host's compiler.
#pragma once

#include "tests/engine/cuda/emulated_block.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(...)
#define threadIdx (::baton::EmulatedBlock::Now().thread_index())
#define __grid_constant__
#define gridDim (::baton::EmulatedBlock::Now().grid_size())
#define blockIdx (::baton::EmulatedBlock::Now().block_index())

namespace baton {
inline void __syncthreads() { EmulatedBlock::Now().Barrier(); }
}  // namespace baton
