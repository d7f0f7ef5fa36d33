// Sets of bf16 and int8 blocks for gemm_tile_stream.h: tiles of weights are multiplied as they lie
// in memory, and sums stay in tile registers over all of K.
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

#include "engine/cpu/linear/gemm_tile_stream.h"

namespace baton {
namespace {

template <class T, class W>
class PlainSets {
 public:
  static constexpr int64_t kScratchBytes = 0;
  static constexpr int Blocks(int row_tiles) { return row_tiles == 1 ? 4 : 2; }

  static void Add(const LinearJob& job, const PackedTiles& tiles, const StreamSet& set, float* sums,
                  void* /*scratch*/, FinishedSet<W>* finished) {
    switch (tiles.row_tiles) {
      case 1:
        return AddTiles<1>(job, tiles, set, sums, finished);
      case 2:
        return AddTiles<2>(job, tiles, set, sums, finished);
      default:
        return AddTiles<3>(job, tiles, set, sums, finished);
    }
  }

 private:
  static constexpr int kMaxBlocks = 4;
  // How far ahead lines are prefetched: 1 to 4 KiB are equally fast for one row tile; more rows
  // take longer for a k tile.
  static constexpr int64_t AheadTiles(int row_tiles) { return row_tiles == 1 ? 3 : 4; }

  // Addresses of the current tiles, and what goes beside their products.
  struct Place {
    const char* rows;   // first row tile
    int64_t next_rows;  // bytes to the next row tile
    const char* b[kMaxBlocks];
    int64_t ahead;   // bytes to the lines that are prefetched
    int64_t finish;  // finished rows that are written
  };

  template <int kRowTiles>
  static void AddTiles(const LinearJob& job, const PackedTiles& tiles, const StreamSet& set,
                       float* sums, FinishedSet<W>* finished) {
    constexpr int kBlocks = Blocks(kRowTiles);
    const char* const weights =
        static_cast<const char*>(job.weights) + set.block * job.block_bytes + W::KBytes(job, 0);
    const int64_t ahead_tiles = AheadTiles(kRowTiles);
    Place at = {tiles.At(job, 0, 0),
                tiles.k_tiles * kTileBytes,
                {},
                ahead_tiles * kTileBytes,
                finished->PerStep(tiles.k_tiles)};
    for (int b = 0; b < kBlocks; ++b) {
      at.b[b] = weights + (b < set.blocks ? b * job.block_bytes : 0);
    }
    const bool has_next = set.next < job.n_blocks;
    const int64_t to_next = (set.next - set.block) * job.block_bytes - tiles.k_tiles * kTileBytes;
    const int64_t inside = tiles.k_tiles - Min(tiles.k_tiles, ahead_tiles);
    ZeroSums<kRowTiles>();
    Multiply<kRowTiles>(&at, inside, finished);
    at.ahead += has_next ? to_next : 0;
    Multiply<kRowTiles>(&at, tiles.k_tiles - inside, finished);
    StoreSums<kRowTiles>(sums);
  }

  // Multiplies the next k_tiles.
  template <int kRowTiles>
  static void Multiply(Place* place, int64_t k_tiles, FinishedSet<W>* finished) {
    constexpr int kBlocks = Blocks(kRowTiles);
    Place at = *place;
    for (int64_t k = 0; k < k_tiles; ++k) {
      MultiplyTile<kRowTiles>(at);
      finished->Rows(at.finish);
      at.rows += kTileBytes;
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) at.b[b] += kTileBytes;
    }
    *place = at;
  }
  // Prefetches a quarter of a later k tile of all blocks: spread over the products of a k tile,
  // prefetches are a hundredth faster than in one go.
  template <int kRowTiles, int kQuarter>
  static inline __attribute__((always_inline)) void Prefetch(const Place& at) {
    constexpr int kBlocks = Blocks(kRowTiles);
#pragma GCC unroll 4
    for (int64_t line = kQuarter * 256; line < (kQuarter + 1) * 256; line += 64) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) _mm_prefetch(at.b[b] + at.ahead + line, _MM_HINT_T0);
    }
  }
  template <int kRowTiles>
  static inline __attribute__((always_inline)) void MultiplyTile(const Place& at) {
    if constexpr (kRowTiles == 1) {
      T::template Load<4>(at.rows, 64);
      Prefetch<1, 0>(at);
      T::template Load<5>(at.b[0], 64);
      W::template Dot<T, 0, 4, 5>();
      Prefetch<1, 1>(at);
      T::template Load<6>(at.b[1], 64);
      W::template Dot<T, 1, 4, 6>();
      Prefetch<1, 2>(at);
      T::template Load<7>(at.b[2], 64);
      W::template Dot<T, 2, 4, 7>();
      Prefetch<1, 3>(at);
      T::template Load<5>(at.b[3], 64);
      W::template Dot<T, 3, 4, 5>();
    } else if constexpr (kRowTiles == 2) {
      T::template Load<4>(at.rows, 64);
      T::template Load<5>(at.rows + at.next_rows, 64);
      T::template Load<6>(at.b[0], 64);
      T::template Load<7>(at.b[1], 64);
      Prefetch<2, 0>(at);
      W::template Dot<T, 0, 4, 6>();
      Prefetch<2, 1>(at);
      W::template Dot<T, 1, 5, 6>();
      Prefetch<2, 2>(at);
      W::template Dot<T, 2, 4, 7>();
      Prefetch<2, 3>(at);
      W::template Dot<T, 3, 5, 7>();
    } else {
      T::template Load<7>(at.b[0], 64);
      T::template Load<6>(at.rows, 64);
      Prefetch<3, 0>(at);
      W::template Dot<T, 0, 6, 7>();
      T::template Load<6>(at.rows + at.next_rows, 64);
      Prefetch<3, 1>(at);
      W::template Dot<T, 1, 6, 7>();
      T::template Load<6>(at.rows + 2 * at.next_rows, 64);
      W::template Dot<T, 2, 6, 7>();
      T::template Load<7>(at.b[1], 64);
      Prefetch<3, 2>(at);
      W::template Dot<T, 5, 6, 7>();
      T::template Load<6>(at.rows + at.next_rows, 64);
      Prefetch<3, 3>(at);
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
