// Up to 48 rows on AMX tiles: weights stream from memory once, past sums that stay in registers
// over all of K. For any type of weights W and tiles T (gemm_tile.h).
//
//             blocks 0   1   2   3               0   1                  0   1
//   rows  0   [4]   C0  C1  C2  C3       [4]    C0  C2          [6]    C0  C3
//        16                              [5]    C1  C3          [6]    C1  C4
//        32                                                     [6]    C2  C5
//   weights         [5] [6] [7] [5]             [6] [7]                [7] [7]
//
//   for each k tile: lines to come of all blocks are prefetched to L1, line by line in turn, then
//   tiles are loaded and multiplied; 33 to 48 rows: the second block meets the row tiles in
//   descending order, so that the third one is loaded once
//
// Prefetches beyond the end of a block bring the beginning of the block that this member most
// likely reads next. Missing blocks read the first block in their place; the results are not used.
//
// Measured on an AMX Xeon with 2 cores, bf16, K 2,048, GB/s of weights (a plain read 33 to 38): up
// to 16 rows 16 lines of one block after the other 29.3-30.2, in turn 31.6-33.0; with loads in
// place of prefetches 31, every second line 29; 1, 2, 3, 6 blocks 25, 31, 30.5, 31.9. 17-32 rows
// 29-30 where squares with K blocks gave 23-24.5; 33-48 rows 29.7-30.3 (19). For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile.h"
#include "engine/cpu/linear/gemm_tile_finish.h"

namespace baton {
namespace {

template <class T, class W>
class TileStream {
 public:
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kMaxRows = 48;
  static constexpr int kMaxBlocks = 4;
  static constexpr int Blocks(int row_tiles) { return row_tiles == 1 ? 4 : 2; }
  // How far ahead lines are prefetched: 1 to 4 KiB are equally fast for one row tile; more rows
  // take longer for a k tile.
  static constexpr int64_t AheadTiles(int row_tiles) { return row_tiles == 1 ? 3 : 4; }

  static int RowTiles(const LinearJob& job) { return static_cast<int>(DivideUp(job.rows, 16)); }
  static PackedTiles Tiles(const LinearJob& job) {
    return W::Tiles(job, RowTiles(job), job.k_padded);  // one K block
  }
  static int64_t PackedRowsBytes(const LinearJob& job) { return W::PackedBytes(Tiles(job)); }
  static int64_t PackItems(const LinearJob& job) { return RowTiles(job); }
  static void Pack(const LinearJob& job, int64_t row_tile, bf16* room) {
    W::Pack(job, Tiles(job), row_tile, room);
  }
  static int64_t ItemBlocks(const LinearJob& job) { return Blocks(RowTiles(job)); }
  static int64_t RunItems(const LinearJob& job) { return DivideUp(job.n_blocks, ItemBlocks(job)); }
  // (blocks, 16 * row tiles, 16) fp32 sums.
  static int64_t ScratchBytes(const LinearJob& job) {
    return ItemBlocks(job) * RowTiles(job) * kSumTile * 4;
  }

  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    float* const sums = static_cast<float*>(scratch);
    T::Configure();
    switch (RowTiles(job)) {
      case 1:
        return RunTiles<1>(job, item, sums);
      case 2:
        return RunTiles<2>(job, item, sums);
      default:
        return RunTiles<3>(job, item, sums);
    }
  }

  // Addresses of the current tiles.
  struct Place {
    const char* rows;   // first row tile
    int64_t next_rows;  // bytes to the next row tile
    const char* b[kMaxBlocks];
  };

  template <int kRowTiles>
  static void RunTiles(const LinearJob& job, int64_t item, float* sums) {
    constexpr int kBlocks = Blocks(kRowTiles);
    const PackedTiles tiles = Tiles(job);
    const int64_t first = item * kBlocks, blocks = Min(kBlocks, job.n_blocks - first);
    const int64_t next = first + job.item_step * kBlocks;
    const char* const weights =
        static_cast<const char*>(job.weights) + first * job.block_bytes + W::KBytes(job, 0);
    Place at = {tiles.At(job, 0, 0), tiles.k_tiles * kTileBytes, {}};
    for (int b = 0; b < kBlocks; ++b) at.b[b] = weights + (b < blocks ? b * job.block_bytes : 0);
    const int64_t ahead = AheadTiles(kRowTiles) * kTileBytes;
    const int64_t to_next_item =
        next < job.n_blocks ? (next - first) * job.block_bytes - tiles.k_tiles * kTileBytes : 0;
    const int64_t inside = tiles.k_tiles - Min(tiles.k_tiles, AheadTiles(kRowTiles));
    ZeroSums<kRowTiles>();
    Multiply<kRowTiles>(&at, inside, ahead);
    Multiply<kRowTiles>(&at, tiles.k_tiles - inside, ahead + to_next_item);
    StoreSums<kRowTiles>(sums);
    T::Release();
    for (int64_t b = 0; b < blocks; b += 2) {
      const PairSums pair = {sums + b * kRowTiles * kSumTile,
                             kRowTiles * kSumTile,
                             0,
                             job.rows,
                             first + b,
                             Min(2, blocks - b)};
      FinishPair(job, typename W::Outputs(job, tiles, pair.block, pair.blocks), pair,
                 LinePart::kNone, nullptr);
    }
  }

  // Multiplies the next k_tiles, and prefetches lines `ahead` bytes ahead meanwhile.
  template <int kRowTiles>
  static void Multiply(Place* place, int64_t k_tiles, int64_t ahead) {
    constexpr int kBlocks = Blocks(kRowTiles);
    Place at = *place;
    for (int64_t k = 0; k < k_tiles; ++k) {
#pragma GCC unroll 16
      for (int64_t line = 0; line < kTileBytes; line += 64) {
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) _mm_prefetch(at.b[b] + ahead + line, _MM_HINT_T0);
      }
      MultiplyTile<kRowTiles>(at);
      at.rows += kTileBytes;
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) at.b[b] += kTileBytes;
    }
    *place = at;
  }
  template <int kRowTiles>
  static inline __attribute__((always_inline)) void MultiplyTile(const Place& at) {
    if constexpr (kRowTiles == 1) {
      T::template Load<4>(at.rows, 64);
      T::template Load<5>(at.b[0], 64);
      W::template Dot<T, 0, 4, 5>();
      T::template Load<6>(at.b[1], 64);
      W::template Dot<T, 1, 4, 6>();
      T::template Load<7>(at.b[2], 64);
      W::template Dot<T, 2, 4, 7>();
      T::template Load<5>(at.b[3], 64);
      W::template Dot<T, 3, 4, 5>();
    } else if constexpr (kRowTiles == 2) {
      T::template Load<4>(at.rows, 64);
      T::template Load<5>(at.rows + at.next_rows, 64);
      T::template Load<6>(at.b[0], 64);
      T::template Load<7>(at.b[1], 64);
      W::template Dot<T, 0, 4, 6>();
      W::template Dot<T, 1, 5, 6>();
      W::template Dot<T, 2, 4, 7>();
      W::template Dot<T, 3, 5, 7>();
    } else {
      T::template Load<7>(at.b[0], 64);
      T::template Load<6>(at.rows, 64);
      W::template Dot<T, 0, 6, 7>();
      T::template Load<6>(at.rows + at.next_rows, 64);
      W::template Dot<T, 1, 6, 7>();
      T::template Load<6>(at.rows + 2 * at.next_rows, 64);
      W::template Dot<T, 2, 6, 7>();
      T::template Load<7>(at.b[1], 64);
      W::template Dot<T, 5, 6, 7>();
      T::template Load<6>(at.rows + at.next_rows, 64);
      W::template Dot<T, 4, 6, 7>();
      T::template Load<6>(at.rows, 64);
      W::template Dot<T, 3, 6, 7>();
    }
  }
  template <int kRowTiles>
  static void ZeroSums() {
    T::template Zero<0>();
    T::template Zero<1>();
    T::template Zero<2>();
    T::template Zero<3>();
    if constexpr (kRowTiles == 3) {
      T::template Zero<4>();
      T::template Zero<5>();
    }
  }
  // Register C of b * kRowTiles + t holds sum t of block b.
  template <int kRowTiles>
  static void StoreSums(float* to) {
    T::template Store<0>(to, 64);
    T::template Store<1>(to + kSumTile, 64);
    T::template Store<2>(to + 2 * kSumTile, 64);
    T::template Store<3>(to + 3 * kSumTile, 64);
    if constexpr (kRowTiles == 3) {
      T::template Store<4>(to + 4 * kSumTile, 64);
      T::template Store<5>(to + 5 * kSumTile, 64);
    }
  }
};

}  // namespace
}  // namespace baton
