// The GEMM for few rows at the speed of memory: it streams the weights once. Operands are swapped:
// a warp multiplies 16 rows of weights by 8 to 32 rows of activations. Blocks stay; one thread of
// each copies boxes of both (tma.cuh) into a ring, some tiles ahead of the warps that multiply. The
// first weights are on their way before the kernel before has ended. Device code: nothing of CUDA's
// runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/matrix_load.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/ring_place.cuh"
#include "engine/cuda/shared_tile.cuh"
#include "engine/cuda/tma.cuh"

namespace baton {
namespace {

// A block's tile: kRows rows of activations, 16 rows of weights for each of kWarps warps.
template <int kRows, int kWarps>
struct StreamTile {
  static constexpr int kWeights = 16 * kWarps;
  static constexpr int kThreads = 32 * (kWarps + 1);  // one more warp, to copy
  static constexpr int kDepth = kRows <= 16 ? 4 : 2;  // groups of 64 values of k in a stage
  static constexpr int kWeightBytes = kWeights * kTileRowBytes;  // of 64 values of k
  static constexpr int kRowBytes = kRows * kTileRowBytes;
  static constexpr int kStageBytes = kDepth * (kWeightBytes + kRowBytes);
  // Counts those of a multiprocessor. With one block on each, the next kernel's find room beside
  // it.
  static constexpr int kBlocks = 2;
  static constexpr int kStages = 110 * 1024 / kStageBytes;
  // 1024 bytes more than the stages, because the first one begins at a multiple of 1024; two
  // barriers for each.
  static constexpr int kSharedBytes = 1024 + kStages * (kStageBytes + 16);
};

// A warp multiplies so much at once: 32 values of k.
template <int kRows>
struct StreamFragments {
  uint32_t weights[2][4];       // of each 16 values of k
  uint32_t rows[kRows / 8][4];  // of each 8 rows: both 16 values of k
};

template <int kRows, int kWarps>
__global__ void __launch_bounds__(StreamTile<kRows, kWarps>::kThreads,
                                  StreamTile<kRows, kWarps>::kBlocks)
    GemmStreamMmaKernel(const __grid_constant__ TensorMap a_map,
                        const __grid_constant__ TensorMap b_map, const GemmOutput output,
                        const GemmShape shape) {
  using Tile = StreamTile<kRows, kWarps>;
  constexpr int kStages = Tile::kStages, kDepth = Tile::kDepth;
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const uint32_t full = ring + kStages * Tile::kStageBytes;  // barriers: bytes are there
  const uint32_t empty = full + kStages * 8;                 // barriers: all have read them
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(full + stage * 8, 1);
      InitBarrier(empty + stage * 8, kWarps);
    }
    ShowBarriers();
  }
  __syncthreads();
  LetNextKernelBegin();

  const int n_groups = shape.k / kTileK;
  const int n_steps = (n_groups + kDepth - 1) / kDepth;  // stages of a tile
  const int n_weight_tiles = (shape.n + Tile::kWeights - 1) / Tile::kWeights;
  const int n_tiles = n_weight_tiles * ((shape.m + kRows - 1) / kRows);
  RingPlace<kStages> place;

  if (warp == kWarps) {
    if (lane != 0) return;
    const auto copy_weights = [&](int tile, int step) {
      CopyColumnBox(ring + place.stage * Tile::kStageBytes, b_map, step * kDepth,
                    tile % n_weight_tiles * Tile::kWeights, full + place.stage * 8);
    };
    const auto copy_rows = [&](int tile, int step) {
      CopyColumnBox(ring + place.stage * Tile::kStageBytes + kDepth * Tile::kWeightBytes, a_map,
                    step * kDepth, tile / n_weight_tiles * kRows, full + place.stage * 8);
    };
    // The first stages: weights do not wait for the kernel before.
    const int first = blockIdx.x;
    const int n_early = n_steps < kStages ? n_steps : kStages;
    for (int step = 0; step < n_early; ++step) {
      ArriveExpecting(full + place.stage * 8, Tile::kStageBytes);
      copy_weights(first, step);
      place.Advance();
    }
    // Brings as many more into the cache meanwhile.
    int tile_ahead = first, step_ahead = n_early;
    for (int i = 0; i < kStages; ++i) {
      if (step_ahead == n_steps) {
        step_ahead = 0;
        tile_ahead += gridDim.x;
      }
      if (tile_ahead >= n_weight_tiles) break;  // the same weights again, or none
      PrefetchColumnBox(b_map, step_ahead * kDepth, tile_ahead * Tile::kWeights);
      ++step_ahead;
    }
    WaitForKernelBefore();
    place = {};
    for (int step = 0; step < n_early; ++step) {
      copy_rows(first, step);
      place.Advance();
    }
    for (int tile = first; tile < n_tiles; tile += gridDim.x) {
      for (int step = tile == first ? n_early : 0; step < n_steps; ++step) {
        WaitForPhase(empty + place.stage * 8, place.parity ^ 1);
        ArriveExpecting(full + place.stage * 8, Tile::kStageBytes);
        copy_weights(tile, step);
        copy_rows(tile, step);
        place.Advance();
      }
    }
    return;
  }

  // Where this lane's rows of matrices are in a tile, for LoadMatrices. Of weights: rows 0 to 7 and
  // 8 to 15 at a piece, then at the next one; of activations: one row at four pieces.
  const int of_8 = lane % 8;
  const uint32_t weight_offset =
      static_cast<uint32_t>((warp * 16 + lane % 16) * kTileRowBytes + (lane / 16 ^ of_8) * 16);
  const uint32_t row_offset = static_cast<uint32_t>(of_8 * kTileRowBytes + (lane / 8 ^ of_8) * 16);
  const auto load = [&](StreamFragments<kRows>& fragments, int stage, int half) {
    const uint32_t weights = ring + stage * Tile::kStageBytes;
    const uint32_t rows = weights + kDepth * Tile::kWeightBytes;
    const int group = half / 2;  // of 64 values of k
    const uint32_t at = half % 2 * 64;
    LoadMatrices(fragments.weights[0], weights + group * Tile::kWeightBytes + (weight_offset ^ at));
    LoadMatrices(fragments.weights[1],
                 weights + group * Tile::kWeightBytes + (weight_offset ^ (at + 32)));
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i)
      LoadMatrices(fragments.rows[i],
                   rows + group * Tile::kRowBytes + i * 8 * kTileRowBytes + (row_offset ^ at));
  };

  WaitForKernelBefore();
  for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
    float sums[kRows / 8][4] = {};
    StreamFragments<kRows> fragments[2];
    const auto add = [&](const StreamFragments<kRows>& given) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          const uint32_t right[2] = {given.rows[j][2 * i], given.rows[j][2 * i + 1]};
          MmaAdd(sums[j], given.weights[i], right);
        }
      }
    };
    WaitForPhase(full + place.stage * 8, place.parity);
    load(fragments[0], place.stage, 0);
    for (int n_left = n_groups; n_left > 0; n_left -= kDepth) {
      const int stage = place.stage;
      place.Advance();
      // Loads what comes next before this is added. A tile's last stage may be a part of one.
      if (n_left >= kDepth) {
#pragma unroll
        for (int half = 0; half < 2 * kDepth; ++half) {
          if (half + 1 < 2 * kDepth) {
            load(fragments[(half + 1) % 2], stage, half + 1);
          } else if (n_left > kDepth) {
            WaitForPhase(full + place.stage * 8, place.parity);
            load(fragments[0], place.stage, 0);
          }
          add(fragments[half % 2]);
        }
      } else {
#pragma unroll
        for (int half = 0; half < 2 * kDepth; ++half) {
          if (half == 2 * n_left) break;
          if (half + 1 < 2 * n_left) load(fragments[(half + 1) % 2], stage, half + 1);
          add(fragments[half % 2]);
        }
      }
      ArriveAsWarp(empty + stage * 8);
    }
    EndSwapped(output, shape, tile / n_weight_tiles * kRows + 2 * (lane % 4),
               tile % n_weight_tiles * Tile::kWeights + warp * 16 + lane / 4, sums);
  }
}

}  // namespace
}  // namespace baton
