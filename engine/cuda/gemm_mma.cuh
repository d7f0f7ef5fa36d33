// The kernel of the reference GEMM: what every other kernel must equal bit by bit. Device code:
// nothing of CUDA's runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/mma.cuh"

namespace baton {
namespace {

constexpr int kWarps = 4;
constexpr int kColumnTiles = 4;  // a warp has 16 rows and 4 * 8 columns
constexpr int kBlockColumns = kWarps * kColumnTiles * 8;

// Reads two neighbouring values; rows beyond the matrix are zeros.
__device__ __forceinline__ uint32_t Pair(const uint16_t* matrix, int row, int n_rows, int k,
                                         int at) {
  if (row >= n_rows) return 0;
  return *reinterpret_cast<const uint32_t*>(matrix + static_cast<int64_t>(row) * k + at);
}

__global__ void __launch_bounds__(kWarps * 32)
    GemmMmaKernel(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;
  const int row = blockIdx.y * 16 + g;
  const int column = blockIdx.x * kBlockColumns + threadIdx.x / 32 * kColumnTiles * 8;
  float sums[kColumnTiles][4] = {};
  for (int at = 0; at < shape.k; at += 16) {
    const uint32_t a_pairs[4] = {Pair(a, row, shape.m, shape.k, at + 2 * t),
                                 Pair(a, row + 8, shape.m, shape.k, at + 2 * t),
                                 Pair(a, row, shape.m, shape.k, at + 2 * t + 8),
                                 Pair(a, row + 8, shape.m, shape.k, at + 2 * t + 8)};
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const int b_row = column + tile * 8 + g;
      const uint32_t b_pairs[2] = {Pair(b, b_row, shape.n, shape.k, at + 2 * t),
                                   Pair(b, b_row, shape.n, shape.k, at + 2 * t + 8)};
      MmaAdd(sums[tile], a_pairs, b_pairs);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int out_row = row + 8 * (i / 2);
      const int out_column = column + tile * 8 + 2 * t + i % 2;
      if (out_row < shape.m && out_column < shape.n)
        c[static_cast<int64_t>(out_row) * shape.n + out_column] = sums[tile][i];
    }
  }
}

}  // namespace
}  // namespace baton
