// Matrix products of the CUDA engine: C (m, n) = A (m, k) * B (n, k)^T, rows of A and B in bf16
// with k values side by side, C in fp32. Every output has one accumulator, which takes all of k in
// ascending groups of 16 from +0: bits do not depend on m, n, tile or kernel (docs/CUDA.md).
// Functions put work into a stream of the calling thread's device and return the launch's error.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <vector>

#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

// The reference: mma.sync m16n8k16, operands read from global memory. Simple, not fast.
cudaError_t GemmByMma(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape,
                      cudaStream_t stream);

// wgmma in tiles of (128, tile_n); tile_n is 8, 64, 128 or 256.
cudaError_t GemmByWgmma(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape, int tile_n,
                        cudaStream_t stream);

// For up to 64 rows, the faster the fewer; correct for more.
cudaError_t GemmOfFewRows(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape,
                          cudaStream_t stream);

// Return how each starts its kernels.
std::vector<KernelLaunch> MmaLaunches();
std::vector<KernelLaunch> FewLaunches();
std::vector<KernelLaunch> WgmmaLaunches();

}  // namespace baton
