// The kernel of the GEMM for few rows: it streams the weights once. Operands are swapped, so that
// 16 rows of weights meet 8 to 64 rows of activations in one mma.sync; a warp has all of k of its
// 16, so there are as many blocks as the memory's bandwidth needs. Device code: nothing of CUDA's
// runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/shared_tile.cuh"

namespace baton {
namespace {

constexpr int kFewThreads = 32;
constexpr int kWeightRows = 16;

// Stages under way: 2 KiB of weights each, 30 KiB at 16 stages; several blocks share a
// multiprocessor.
template <int kTileM>
constexpr int kFewStages = kTileM > 16 ? 8 : 16;

template <int kTileM>
constexpr int kFewStageBytes = (kWeightRows + kTileM) * kTileRowBytes;

template <int kTileM>
constexpr int kFewSharedBytes = 1024 + kFewStages<kTileM>* kFewStageBytes<kTileM>;

// Returns two neighbouring values of a row of a tile, at piece `piece` and pair `t` in it.
__device__ __forceinline__ uint32_t PairOf(uint32_t tile, int row, int piece, int t) {
  return LoadShared(tile + row * kTileRowBytes + (piece ^ row % 8) * 16 + t * 4);
}

template <int kTileM>
__global__ void __launch_bounds__(kFewThreads)
    GemmFewMmaKernel(const uint16_t* a, int a_stride, const uint16_t* b, GemmOutput output,
                     GemmShape shape) {
  constexpr int kStages = kFewStages<kTileM>;
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const int first_weight = blockIdx.x * kWeightRows, first_row = blockIdx.y * kTileM;
  const int n_tiles = shape.k / kTileK;
  const auto copy = [&](int tile) {
    const uint32_t stage = ring + tile % kStages * kFewStageBytes<kTileM>;
    CopyTile<kWeightRows, kFewThreads>(stage, b, first_weight, shape.n, shape.k, tile * kTileK);
    CopyTile<kTileM, kFewThreads>(stage + kWeightRows * kTileRowBytes, a, first_row, shape.m,
                                  a_stride, tile * kTileK);
  };
  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < n_tiles) copy(tile);
    CommitCopies();  // empty groups keep the count
  }

  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  float sums[kTileM / 8][4] = {};
  for (int tile = 0; tile < n_tiles; ++tile) {
    WaitForCopies<kStages - 2>();
    __syncthreads();  // this tile is there for all lanes, and all have read the one before
    if (tile + kStages - 1 < n_tiles) copy(tile + kStages - 1);
    CommitCopies();
    const uint32_t weights = ring + tile % kStages * kFewStageBytes<kTileM>;
    const uint32_t rows = weights + kWeightRows * kTileRowBytes;
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
      const uint32_t left[4] = {
          PairOf(weights, g, 2 * step, t), PairOf(weights, g + 8, 2 * step, t),
          PairOf(weights, g, 2 * step + 1, t), PairOf(weights, g + 8, 2 * step + 1, t)};
#pragma unroll
      for (int i = 0; i < kTileM / 8; ++i) {
        const uint32_t right[2] = {PairOf(rows, i * 8 + g, 2 * step, t),
                                   PairOf(rows, i * 8 + g, 2 * step + 1, t)};
        MmaAdd(sums[i], left, right);
      }
    }
  }
  EndSwapped(output, shape, first_row + 2 * t, first_weight + g, sums);
}

}  // namespace
}  // namespace baton
