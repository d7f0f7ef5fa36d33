// The GEMM for many rows at full speed: blocks that stay, one warp that copies boxes of both
// matrices into a ring (tma.cuh), and warpgroups of 64 rows that multiply what is there. The first
// weights are on their way before the kernel before has ended. Device code: nothing of CUDA's
// runtime, so that tests can run it on an emulated block of threads.
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
  static constexpr int kThreads = 128 * (kGroups + 1);  // one more warpgroup, to copy
  // Counts those of a multiprocessor. Small tiles are for products of few tiles: what limits these
  // is how many bytes are on their way to each multiprocessor.
  static constexpr int kBlocks = kGroups == 1 && kTileN == 128 ? 2 : 1;
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

template <int kGroups, int kTileN>
__global__ void __launch_bounds__(TmaTile<kGroups, kTileN>::kThreads,
                                  TmaTile<kGroups, kTileN>::kBlocks)
    GemmTmaWgmmaKernel(const __grid_constant__ TensorMap a_map,
                       const __grid_constant__ TensorMap b_map, const GemmOutput output,
                       const GemmShape shape) {
  using Tile = TmaTile<kGroups, kTileN>;
  constexpr int kStages = Tile::kStages;
  constexpr int kRowGroup = 16;  // 2048 rows of 128-row tiles
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const uint32_t full = ring + kStages * Tile::kStageBytes;  // barriers: bytes are there
  const uint32_t empty = full + kStages * 8;                 // barriers: all have read them
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;

  if (threadIdx.x == 0) {
    PrefetchMap(a_map);
    PrefetchMap(b_map);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(full + stage * 8, 1);
      InitBarrier(empty + stage * 8, kGroups * 4);  // a lane of each warp
    }
    ShowBarriers();
  }
  __syncthreads();
  LetNextKernelBegin();

  const int n_steps = shape.k / kTileK;
  const int n_row_tiles = (shape.m + Tile::kRows - 1) / Tile::kRows;
  const int n_column_tiles = (shape.n + kTileN - 1) / kTileN;
  const int n_tiles = n_row_tiles * n_column_tiles;
  const auto place_of = [&](int tile) {
    return PlaceOfTile(tile, n_row_tiles, n_column_tiles, kRowGroup);
  };
  RingPlace<kStages> place;

  if (warpgroup == kGroups) {
    if constexpr (Tile::kMovesRegisters) GiveRegisters<Tile::kCopyRegisters>();
    if (threadIdx.x != kGroups * 128) return;
    const auto copy_rows = [&](TilePlace at, int step) {
      CopyBox(ring + place.stage * Tile::kStageBytes, a_map, step * kTileK, at.row * Tile::kRows,
              full + place.stage * 8);
    };
    const auto copy_weights = [&](TilePlace at, int step) {
      CopyBox(ring + place.stage * Tile::kStageBytes + Tile::kABytes, b_map, step * kTileK,
              at.column * kTileN, full + place.stage * 8);
    };
    // The first stages: weights do not wait for the kernel before.
    const int first = blockIdx.x, n_early = n_steps < kStages ? n_steps : kStages;
    const TilePlace first_place = place_of(first);
    for (int step = 0; step < n_early; ++step) {
      ArriveExpecting(full + place.stage * 8, Tile::kStageBytes);
      copy_weights(first_place, step);
      place.Advance();
    }
    WaitForKernelBefore();
    place = {};
    for (int step = 0; step < n_early; ++step) {
      copy_rows(first_place, step);
      place.Advance();
    }
    for (int tile = first; tile < n_tiles; tile += gridDim.x) {
      const TilePlace at = place_of(tile);
      for (int step = tile == first ? n_early : 0; step < n_steps; ++step) {
        WaitForPhase(empty + place.stage * 8, place.parity ^ 1);
        ArriveExpecting(full + place.stage * 8, Tile::kStageBytes);
        copy_rows(at, step);
        copy_weights(at, step);
        place.Advance();
      }
    }
    return;
  }

  if constexpr (Tile::kMovesRegisters) TakeRegisters<Tile::kSumRegisters>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  WaitForKernelBefore();
  for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
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
        ArriveAsWarp(empty + before * 8);
      }
      before = place.stage;
      place.Advance();
    }
    WarpgroupWait<0>();
    ArriveAsWarp(empty + before * 8);
    const TilePlace at = place_of(tile);
    const int row = at.row * Tile::kRows + warpgroup * 64 +
                    static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    EndWideFragment(output, shape, row, at.column * kTileN + lane % 4 * 2, lane % 4, sums);
  }
}

}  // namespace
}  // namespace baton
