// The kernel of the reference GEMM: what every other kernel must equal bit by bit. Device code:
// nothing of CUDA's runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/mma.cuh"

namespace baton {
namespace {

constexpr int kWarps = 4;
constexpr int kColumnTiles = 4;  // a warp has 16 rows and 4 * 8 columns
constexpr int kBlockColumns = kWarps * kColumnTiles * 8;

// Reads two neighbouring values; rows beyond the matrix are zeros.
__device__ __forceinline__ uint32_t Pair(const uint16_t* matrix, int row, int n_rows, int stride,
                                         int at) {
  if (row >= n_rows) return 0;
  return *reinterpret_cast<const uint32_t*>(matrix + static_cast<int64_t>(row) * stride + at);
}

__global__ void __launch_bounds__(kWarps * 32)
    GemmMmaKernel(const uint16_t* a, int a_stride, const uint16_t* b, GemmOutput output,
                  GemmShape shape) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;
  const int row = blockIdx.y * 16 + g;
  const int column = blockIdx.x * kBlockColumns + threadIdx.x / 32 * kColumnTiles * 8;
  float sums[kColumnTiles][4] = {};
  for (int at = 0; at < shape.k; at += 16) {
    const uint32_t a_pairs[4] = {Pair(a, row, shape.m, a_stride, at + 2 * t),
                                 Pair(a, row + 8, shape.m, a_stride, at + 2 * t),
                                 Pair(a, row, shape.m, a_stride, at + 2 * t + 8),
                                 Pair(a, row + 8, shape.m, a_stride, at + 2 * t + 8)};
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const int b_row = column + tile * 8 + g;
      const uint32_t b_pairs[2] = {Pair(b, b_row, shape.n, shape.k, at + 2 * t),
                                   Pair(b, b_row, shape.n, shape.k, at + 2 * t + 8)};
      MmaAdd(sums[tile], a_pairs, b_pairs);
    }
  }
  float all[kColumnTiles * 4];
#pragma unroll
  for (int i = 0; i < kColumnTiles * 4; ++i) all[i] = sums[i / 4][i % 4];
  EndFragment(output, shape, row, column + 2 * t, all);
}

}  // namespace
}  // namespace baton
