// Starts the attention of pieces with more than one row by warpgroups; AttendChunks calls it.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/attention_pass.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

// As AttendChunks, with the same bits. Pages lie at multiples of 16 bytes.
cudaError_t AttendByWarpgroups(const AttentionPass& pass, int row, int n_tiles,
                               cudaStream_t stream);

std::vector<KernelLaunch> WarpgroupLaunches();

}  // namespace baton
