// Matrix products of the CUDA engine: A (m, k) * B (n, k)^T, rows of A and B in bf16 with k values
// side by side; GemmOutput says what becomes of the sums. Every output has one accumulator, which
// takes all of k in ascending groups of 16 from +0: bits do not depend on m, n, tile or kernel
// (docs/CUDA.md). Pointers are memory of the GPU that 16 bytes align. Functions put work into a
// stream of the calling thread's device and return the launch's error.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <vector>

#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

// By the fastest kernel for the shape. a_stride: values from one row of A to the next, k at least
// and a multiple of 64.
cudaError_t Multiply(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                     GemmShape shape, cudaStream_t stream);

// The reference: mma.sync m16n8k16, operands read from global memory. Simple, not fast.
cudaError_t GemmByMma(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                      GemmShape shape, cudaStream_t stream);

// wgmma in tiles that the tensor memory accelerator brings: the fastest for many rows, and for some
// dozens where n is small.
struct TmaTiles {
  int rows = 128;
  int columns = 256;
};
inline constexpr TmaTiles kTmaTiles[] = {{128, 256}, {128, 224}, {128, 192}, {128, 128},
                                         {128, 64},  {64, 128},  {64, 64},   {64, 32}};
cudaError_t GemmByTma(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                      GemmShape shape, TmaTiles tiles, cudaStream_t stream);

// For up to 32 rows: weights stream once, and first of all. `rows` (8, 16 or 32) of them go through
// a block together, with 16 rows of weights for each of its `warps`.
struct StreamTiles {
  int rows = 8;
  int warps = 1;
};
inline constexpr StreamTiles kStreamTiles[] = {{8, 1},  {8, 2},  {8, 4},  {16, 1},
                                               {16, 2}, {16, 4}, {32, 2}, {32, 4}};
cudaError_t GemmByStream(const uint16_t* a, int a_stride, const uint16_t* b,
                         const GemmOutput& output, GemmShape shape, StreamTiles tiles,
                         cudaStream_t stream);

// Returns whether a kernel can compute that.
inline bool IsProduct(int a_stride, const GemmOutput& output, GemmShape shape) {
  const bool is_gated = IsGated(output.end);
  return shape.m >= 1 && shape.n >= 1 && shape.k >= 64 && shape.k % 64 == 0 &&
         a_stride >= shape.k && a_stride % 64 == 0 && (!is_gated || shape.n % 16 == 0) &&
         output.stride >= (is_gated ? shape.n / 2 : shape.n) &&
         (IsFp32(output.end) ? output.fp32 != nullptr : output.bf16 != nullptr);
}

// The sums, in rows side by side.
inline cudaError_t GemmByMma(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape,
                             cudaStream_t stream) {
  return GemmByMma(a, shape.k, b, SumsOf(c, shape.n), shape, stream);
}

// Return how each starts its kernels.
std::vector<KernelLaunch> MmaLaunches();
std::vector<KernelLaunch> TmaLaunches();
std::vector<KernelLaunch> StreamLaunches();

}  // namespace baton
