// The kernel of the GEMM for many rows: two warpgroups of 64 rows each share a ring of tiles in
// shared memory. Device code: nothing of CUDA's runtime, so that tests can run it on an emulated
// block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/shared_tile.cuh"
#include "engine/cuda/wgmma.cuh"

namespace baton {
namespace {

constexpr int kThreads = 256;
constexpr int kTileM = 128;
constexpr int kStages = 4;
constexpr int kATileBytes = kTileM * kTileRowBytes;

template <int kTileN>
constexpr int kStageBytes = (kTileM + kTileN) * kTileRowBytes;

// 1024 bytes more than the stages, because the first one begins at a multiple of 1024.
template <int kTileN>
constexpr int kSharedBytes = 1024 + kStages* kStageBytes<kTileN>;

template <int kTileN>
__global__ void __launch_bounds__(kThreads, 1)
    GemmWgmmaKernel(const uint16_t* a, int a_stride, const uint16_t* b, GemmOutput output,
                    GemmShape shape) {
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const int first_row = blockIdx.y * kTileM, first_column = blockIdx.x * kTileN;
  const int n_tiles = shape.k / kTileK;
  const auto copy = [&](int tile) {
    const uint32_t stage = ring + tile % kStages * kStageBytes<kTileN>;
    CopyTile<kTileM, kThreads>(stage, a, first_row, shape.m, a_stride, tile * kTileK);
    CopyTile<kTileN, kThreads>(stage + kATileBytes, b, first_column, shape.n, shape.k,
                               tile * kTileK);
  };
  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < n_tiles) copy(tile);
    CommitCopies();  // empty groups keep the count
  }

  const int warpgroup = threadIdx.x / 128;
  float sums[kTileN / 2];
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  for (int tile = 0; tile < n_tiles; ++tile) {
    WaitForCopies<kStages - 2>();
    ShowToWgmma();
    __syncthreads();  // this tile is there, and both warpgroups have read the one before
    if (tile + kStages - 1 < n_tiles) copy(tile + kStages - 1);
    CommitCopies();
    const uint32_t stage = ring + tile % kStages * kStageBytes<kTileN>;
    const uint32_t a_tile = stage + warpgroup * 64 * kTileRowBytes;
    WarpgroupFence();
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step)
      Wgmma<kTileN>::Add(sums, SwizzledTile(a_tile + step * 32),
                         SwizzledTile(stage + kATileBytes + step * 32));
    WarpgroupCommit();
    WarpgroupWait<0>();
  }

  const int lane = threadIdx.x % 32;
  const int row = first_row + warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int column = first_column + lane % 4 * 2;
  EndFragment(output, shape, row, column, sums);
}

}  // namespace
}  // namespace baton
