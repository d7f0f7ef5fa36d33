// The GEMM for many rows at full speed: blocks that stay, one warp that copies boxes of both
// matrices into a ring (tma.cuh), and warpgroups of 64 rows that multiply what is there. Two blocks
// may form a cluster, which has two tiles of rows and the same columns: each copies half of the
// tile of B for both. Device code: nothing of CUDA's runtime, so that tests can run it on an
// emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/gemm_wide_end.cuh"
#include "engine/cuda/ring_place.cuh"
#include "engine/cuda/shared_tile.cuh"
#include "engine/cuda/tma.cuh"
#include "engine/cuda/wgmma.cuh"

namespace baton {
namespace {

// A block's tile: 64 rows for each of `kGroups` warpgroups, and kTileN columns.
template <int kGroups, int kTileN>
struct TmaTile {
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kThreads = 128 * (kGroups + 1);   // one more warpgroup, to copy
  static constexpr int kBlocks = kGroups == 1 ? 2 : 1;   // of a multiprocessor
  static constexpr int kABytes = kRows * kTileRowBytes;  // of a stage
  static constexpr int kStageBytes = (kRows + kTileN) * kTileRowBytes;
  static constexpr int kStages = (kBlocks == 2 ? 98304 : 204800) / kStageBytes;
  // 1024 bytes more than the stages, because the first one begins at a multiple of 1024; two
  // barriers for each.
  static constexpr int kSharedBytes = 1024 + kStages * (kStageBytes + 16);
  // Where the sums of a thread need more registers than its share.
  static constexpr bool kMovesRegisters = kTileN > 64;
  static constexpr int kCopyRegisters = 40, kSumRegisters = kGroups == 2 ? 232 : 208;
};

struct TilePlace {
  int row, column;  // in tiles
};

// Tiles that are computed at about the same time share rows and columns, which the cache then has:
// `group` tiles of rows go through all columns together.
__device__ __forceinline__ TilePlace PlaceOfTile(int tile, int n_row_tiles, int n_column_tiles,
                                                 int group) {
  const int group_tiles = group * n_column_tiles;
  const int first_row = tile / group_tiles * group;
  const int rows = n_row_tiles - first_row < group ? n_row_tiles - first_row : group;
  const int rest = tile % group_tiles;
  return {first_row + rest % rows, rest / rows};
}

template <int kGroups, int kTileN, int kCluster>
__global__ void __launch_bounds__(TmaTile<kGroups, kTileN>::kThreads,
                                  TmaTile<kGroups, kTileN>::kBlocks)
    GemmTmaWgmmaKernel(const __grid_constant__ TensorMap a_map,
                       const __grid_constant__ TensorMap b_map, const GemmOutput output,
                       const GemmShape shape) {
  using Tile = TmaTile<kGroups, kTileN>;
  constexpr int kStages = Tile::kStages;
  constexpr int kRowGroup = 16 / kCluster;  // 2048 rows of 128-row tiles
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const uint32_t full = ring + kStages * Tile::kStageBytes;  // barriers: bytes are there
  const uint32_t empty = full + kStages * 8;                 // barriers: all have read them
  const uint32_t block = kCluster == 1 ? 0 : BlockOfCluster();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;

  if (threadIdx.x == 0) {
    PrefetchMap(a_map);
    PrefetchMap(b_map);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(full + stage * 8, 1);
      InitBarrier(empty + stage * 8, kCluster * kGroups * 4);  // a lane of each warp
    }
    ShowBarriers();
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    ClusterBarrier();
  }
  LetNextKernelBegin();

  const int n_steps = shape.k / kTileK;
  const int n_row_tiles = (shape.m + kCluster * Tile::kRows - 1) / (kCluster * Tile::kRows);
  const int n_column_tiles = (shape.n + kTileN - 1) / kTileN;
  const int n_tiles = n_row_tiles * n_column_tiles;
  const int first_tile = blockIdx.x / kCluster, n_at_once = gridDim.x / kCluster;
  RingPlace<kStages> place;

  if (warpgroup == kGroups) {
    if constexpr (Tile::kMovesRegisters) GiveRegisters<Tile::kCopyRegisters>();
    if (threadIdx.x == kGroups * 128) {
      WaitForKernelBefore();
      for (int tile = first_tile; tile < n_tiles; tile += n_at_once) {
        const TilePlace at = PlaceOfTile(tile, n_row_tiles, n_column_tiles, kRowGroup);
        const int row = (at.row * kCluster + static_cast<int>(block)) * Tile::kRows;
        constexpr int kPart = kTileN / kCluster;  // columns that this block copies
        const int column = at.column * kTileN + static_cast<int>(block) * kPart;
        for (int step = 0; step < n_steps; ++step) {
          const uint32_t stage = ring + place.stage * Tile::kStageBytes;
          const uint32_t barrier = full + place.stage * 8;
          WaitForPhase(empty + place.stage * 8, place.parity ^ 1);
          ArriveExpecting(barrier, Tile::kStageBytes);
          CopyBox(stage, a_map, step * kTileK, row, barrier);
          const uint32_t b_part = stage + Tile::kABytes + block * kPart * kTileRowBytes;
          if constexpr (kCluster == 1) {
            CopyBox(b_part, b_map, step * kTileK, column, barrier);
          } else {
            CopyBoxToBlocks(b_part, b_map, step * kTileK, column, barrier, (1 << kCluster) - 1);
          }
          place.Advance();
        }
      }
    }
  } else {
    if constexpr (Tile::kMovesRegisters) TakeRegisters<Tile::kSumRegisters>();
    const uint32_t lane = threadIdx.x % 32;
    // Tells the blocks whose copies filled a stage that this warp has read it.
    const auto release = [&](int stage) {
      if constexpr (kCluster == 1) {
        ArriveAsWarp(empty + stage * 8);
      } else {
        if (lane < kCluster) ArriveInBlock(empty + stage * 8, lane);
      }
    };
    WaitForKernelBefore();
    for (int tile = first_tile; tile < n_tiles; tile += n_at_once) {
      float sums[kTileN / 2];
#pragma unroll
      for (float& sum : sums) sum = 0.0f;
      int before = 0;  // the stage that operations under way read
      for (int step = 0; step < n_steps; ++step) {
        WaitForPhase(full + place.stage * 8, place.parity);
        const uint32_t stage = ring + place.stage * Tile::kStageBytes;
        const uint32_t a_tile = stage + warpgroup * 64 * kTileRowBytes;
        WarpgroupFence();
#pragma unroll
        for (int i = 0; i < kTileK / 16; ++i)
          Wgmma<kTileN>::Add(sums, SwizzledTile(a_tile + i * 32),
                             SwizzledTile(stage + Tile::kABytes + i * 32));
        WarpgroupCommit();
        if (step > 0) {
          WarpgroupWait<1>();
          release(before);
        }
        before = place.stage;
        place.Advance();
      }
      WarpgroupWait<0>();
      release(before);
      const TilePlace at = PlaceOfTile(tile, n_row_tiles, n_column_tiles, kRowGroup);
      const int row = (at.row * kCluster + static_cast<int>(block)) * Tile::kRows + warpgroup * 64 +
                      static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(lane) / 4;
      const int t = static_cast<int>(lane) % 4, column = at.column * kTileN + t * 2;
      EndWideFragment(output, shape, row, column, t, sums);
    }
  }
  // No block ends while another one of the cluster may still write into it.
  if constexpr (kCluster > 1) {
    ClusterBarrier();
  }
}

}  // namespace
}  // namespace baton
