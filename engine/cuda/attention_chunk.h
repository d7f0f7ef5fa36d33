// Starts the attention of pieces with more than one row; Attend (attention.h) calls it.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/attention_pass.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

inline constexpr int kChunkWarps[] = {4, 8};  // of a block of threads, 16 M-rows each

// The list holds at most n_tiles tiles. row: 64 or 128. pass.chunk_rows: M-rows of a block.
cudaError_t AttendChunks(const AttentionPass& pass, int row, int n_tiles, cudaStream_t stream);

std::vector<KernelLaunch> ChunkLaunches();

}  // namespace baton
