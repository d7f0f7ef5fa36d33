// Many rows on AMX tiles: squares of two row tiles times two blocks, K in blocks. For any type of
// weights W (gemm_tile.h), tiles T, and nest N, which defines the data that each cache holds
// (gemm_tile_rows_in_l2.h, gemm_tile_weights_in_l2.h):
//
//   for each part of the item's blocks:
//     for each K block:
//       for each pair of row tiles:
//         for each pair of the part's blocks:     a square
//           for each k tile of the K block:       a step
//             4 loads, then 4 products; a few lines of what comes next are prefetched
//           the square's sums wait in scratch, or in the last K block are finished as outputs
//
//   N::kRowsOnce            true: rows bypass L1 and weights stay there; false: the other way round
//   N::kPartBlocks          largest part in blocks: an even number
//   N::ItemBlocks(job)      blocks of an item: whole pairs; for gated layers whole pairs of pairs,
//                           whose outputs are whole lines
//   N::BlockTiles(job)      largest K block in k tiles
//   N::kRowsAhead, N::SumsAhead(job)   whether packed rows and sums are prefetched
//
// W::Squares<T, N> computes a square (gemm_tile_squares.h, gemm_tile_groups.h). Tiles are
// configured per work item, so no thread keeps tile state between regions. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile.h"
#include "engine/cpu/linear/gemm_tile_ahead.h"
#include "engine/cpu/linear/gemm_tile_finish.h"
#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

// Blocks [block, block + blocks) of the item [first, end), the blocks that follow, and a K block,
// in k tiles, of the part's blocks.
struct TilePart {
  int64_t first, end;
  int64_t block, blocks;
  int64_t next_block, next_blocks;  // no blocks: nothing comes next
  int64_t k, k_tiles;
  bool is_last;  // the K block is the last one
  int64_t pairs() const { return (blocks + 1) / 2; }
};

// Prefetches during the steps of a K block.
struct TilesAhead {
  LinesAhead<_MM_HINT_T1> rows;
  LinesAhead<_MM_HINT_T0> sums;
  WeightsAhead weights;
  inline __attribute__((always_inline)) void Step() {
    rows.Step();
    weights.Step();
    sums.Step();
  }
};

template <class T, class W, class N>
class TileNest {
 public:
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kMaxRows = 512;
  using Squares = typename W::template Squares<T, N>;

  static int64_t RowPairs(const LinearJob& job) { return DivideUp(job.rows, 32); }
  static PackedTiles Tiles(const LinearJob& job) {
    return W::Tiles(job, 2 * RowPairs(job), N::BlockTiles(job));
  }
  static int64_t PackedRowsBytes(const LinearJob& job) { return W::PackedBytes(Tiles(job)); }
  static int64_t PackItems(const LinearJob& job) { return 2 * RowPairs(job); }
  static void Pack(const LinearJob& job, int64_t row_tile, bf16* room) {
    const PackedTiles tiles = Tiles(job);
    for (int64_t r = 0; r < 16; ++r) W::PackRow(job, tiles, row_tile * 16 + r, room);
  }

  static int64_t PartBlocks(const LinearJob& job) {
    return Min(N::kPartBlocks, N::ItemBlocks(job));
  }
  static int64_t RunItems(const LinearJob& job) {
    return DivideUp(job.n_blocks, N::ItemBlocks(job));
  }
  // Waiting halves of lines, followed by the scratch of squares.
  static int64_t HalvesBytes(const LinearJob& job) {
    return 2 * RowPairs(job) * 16 * kHalfLine * 2;
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    return HalvesBytes(job) + Squares::ScratchBytes(job, Tiles(job), PartBlocks(job));
  }

  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const PackedTiles tiles = Tiles(job);
    const int64_t item_blocks = N::ItemBlocks(job), part_blocks = PartBlocks(job);
    TilePart part = {};
    part.first = item * item_blocks;
    part.end = Min(part.first + item_blocks, job.n_blocks);
    bf16* const halves = static_cast<bf16*>(scratch);
    char* const rest = static_cast<char*>(scratch) + HalvesBytes(job);
    const bool whole_lines = HasWholeLines(job);
    T::Configure();
    for (part.block = part.first; part.block < part.end; part.block += part_blocks) {
      part.blocks = Min(part_blocks, part.end - part.block);
      // After the last part comes the item that this member most likely claims next.
      part.next_block = part.block + part.blocks < part.end
                            ? part.block + part.blocks
                            : part.first + job.item_step * item_blocks;
      part.next_blocks = Min(part_blocks, job.n_blocks - part.next_block);
      Squares squares(job, tiles, {halves, whole_lines}, part, rest);
      RunPart(job, tiles, part, &squares);
    }
    T::Release();
    if (whole_lines) _mm_sfence();
  }

  // Weights that are read after the current K block: the next K block of the same blocks, or the
  // first K block of the next blocks.
  static WeightsAhead NextWeights(const LinearJob& job, const PackedTiles& tiles,
                                  const TilePart& part, int64_t steps) {
    const int64_t k = part.is_last ? 0 : part.k + part.k_tiles;
    const int64_t block = part.is_last ? part.next_block : part.block;
    const int64_t blocks = part.is_last ? part.next_blocks : part.blocks;
    if (blocks <= 0) return {};
    const int64_t from = W::KBytes(job, k), end = W::KBytes(job, k + tiles.TilesFrom(k));
    return {static_cast<const char*>(job.weights) + block * job.block_bytes + from, end - from,
            blocks, job.block_bytes, steps};
  }

  static void RunPart(const LinearJob& job, const PackedTiles& tiles, TilePart part,
                      Squares* squares) {
    const int64_t row_pairs = RowPairs(job), pairs = part.pairs();
    for (part.k = 0; part.k < tiles.k_tiles; part.k += part.k_tiles) {
      part.k_tiles = tiles.TilesFrom(part.k);
      part.is_last = part.k + part.k_tiles == tiles.k_tiles;
      squares->BeginKBlock(part);
      const int64_t steps = squares->Steps();
      const int64_t pair_bytes = 2 * part.k_tiles * kTileBytes;
      TilesAhead ahead;
      ahead.weights = NextWeights(job, tiles, part, row_pairs * pairs * steps);
      const LinesAhead<_MM_HINT_T1> next_rows(N::kRowsAhead ? pair_bytes : 0, pairs * steps);
      const char* rows = tiles.At(job, 0, part.k);
      for (int64_t t = 0; t < row_pairs; ++t, rows += pair_bytes) {
        // After the last pair of a K block comes the first one of the next K block.
        const bool wraps = part.is_last && t + 1 == row_pairs;
        ahead.rows = next_rows.From(wraps ? tiles.At(job, 0, 0) : rows + pair_bytes);
        for (int64_t pair = 0; pair < pairs; ++pair) squares->Add(rows, t, pair, &ahead);
      }
    }
    squares->End();
  }
};

}  // namespace
}  // namespace baton
