// Few rows on AMX tiles: weights stream from memory once, past sums that wait for all of K. For any
// type of weights W and tiles T (gemm_tile.h):
//
//   for each set of the item's blocks:
//     for each step of K:
//       W::Sets<T>     lines to come of all blocks of the set are prefetched, line by line in turn,
//                      so that memory reads several streams; tiles are loaded and multiplied
//       FinishedSet    a few rows of the set before it become outputs
//
// Outputs are written beside the next set's products, because memory must not stand still
// meanwhile, and their lines are prefetched when a set begins: each is a miss, since rows of y lie
// far apart. Only an item's last set is written by itself, so an item has up to 16 blocks.
//
//   W::kStreamRows                  most rows
//   W::Sets<T>::Blocks(row_tiles)   blocks of a set: 2 or 4
//   W::Sets<T>::kScratchBytes
//   W::Sets<T>::Add(job, tiles, set, sums, scratch, finished)
//                                   sums [block][16 * row tiles][16] of a set = its products
//
// Measured on an AMX Xeon with 2 cores, layers one after the other with packing and epilogue, GB/s
// of weights, before with each set written by itself and rows packed by one member: int8, K 2,048,
// N 8,192, 16, 32, 48 rows 31.9, 28.8, 25.0 (31.0, 26.4, 22.8), K 768, N 3,072, 8, 16 rows 28.6,
// 26.6 (25.9, 24.5); bf16, K 2,048, 8, 48 rows 31.6, 25.7 (31.5, 24.2), K 768, 8 rows 30.6 (29.3);
// a plain read 36 to 38. For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/gemm_items.h"
#include "engine/cpu/linear/gemm_tile.h"
#include "engine/cpu/linear/gemm_tile_finish.h"

namespace baton {
namespace {

// Blocks [block, block + blocks), and the first block that this member most likely reads next; it
// may not exist.
struct StreamSet {
  int64_t block, blocks, next;
};

// A set whose sums are complete, of which some rows are not written yet.
template <class W>
class FinishedSet {
 public:
  FinishedSet(const LinearJob& job, const PackedTiles& tiles) : job_(job), tiles_(tiles) {}
  // After the rows of the set before it: sums [block][16 * row tiles][16] of this one.
  void Begin(const StreamSet& set, const float* sums) {
    sums_ = sums;
    block_ = set.block;
    blocks_ = set.blocks;
  }
  // Rows to write at each of so many steps, times pairs of blocks.
  int64_t PerStep(int64_t steps) const { return DivideUp(DivideUp(blocks_, 2) * job_.rows, steps); }
  // Writes the next n rows, or fewer, of a pair of blocks.
  inline __attribute__((always_inline)) void Rows(int64_t n) {
    if (blocks_ > 0) Write(n);
  }
  void AllRows() {
    while (blocks_ > 0) Write(job_.rows);
  }

 private:
  // noinline: inside the loops of tiles it would take their registers.
  __attribute__((noinline)) void Write(int64_t n) {
    const int64_t block_stride = tiles_.rows() * 16;
    const PairSums pair = {sums_ + row_ * 16,        block_stride, row_,
                           Min(n, job_.rows - row_), block_,       Min(2, blocks_)};
    FinishPair(job_, typename W::Outputs(job_, tiles_, pair.block, pair.blocks), pair,
               LinePart::kNone, nullptr);
    row_ += pair.rows;
    if (row_ < job_.rows) return;
    row_ = 0;
    sums_ += 2 * block_stride;
    block_ += 2;
    blocks_ -= 2;
  }

  const LinearJob& job_;
  const PackedTiles& tiles_;
  const float* sums_ = nullptr;
  int64_t block_ = 0, blocks_ = 0, row_ = 0;  // blocks left, next row of the next pair
};

template <class T, class W>
class TileStream {
 public:
  static constexpr LinearKernelTable Table() {
    return {W::kStreamRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  using Sets = typename W::template Sets<T>;
  static constexpr int64_t kMaxItemBlocks = 16;

  static int RowTiles(const LinearJob& job) { return static_cast<int>(DivideUp(job.rows, 16)); }
  static PackedTiles Tiles(const LinearJob& job) {
    PackedTiles tiles = W::Tiles(job, RowTiles(job), job.k_padded);
    tiles.block_tiles = tiles.k_tiles;  // one K block
    return tiles;
  }
  static int64_t PackedRowsBytes(const LinearJob& job) { return W::PackedBytes(Tiles(job)); }
  // An item packs one row: members share the work of a batch that is decoded. Tiles of one row tile
  // have only rows that exist.
  static int64_t PackItems(const LinearJob& job) {
    return RowTiles(job) == 1 ? job.rows : RowTiles(job) * 16;
  }
  static void Pack(const LinearJob& job, int64_t row, bf16* room) {
    W::PackRow(job, Tiles(job), row, room);
  }
  static int64_t SetBlocks(const LinearJob& job) { return Sets::Blocks(RowTiles(job)); }
  static int64_t ItemBlocks(const LinearJob& job) {
    return baton::ItemBlocks(job, SetBlocks(job), kMaxItemBlocks);
  }
  static int64_t RunItems(const LinearJob& job) { return DivideUp(job.n_blocks, ItemBlocks(job)); }
  // Sums of two sets: one is computed while the other is written.
  static int64_t SetSums(const LinearJob& job) { return SetBlocks(job) * RowTiles(job) * kSumTile; }
  static int64_t ScratchBytes(const LinearJob& job) {
    return 2 * SetSums(job) * 4 + Sets::kScratchBytes;
  }

  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const PackedTiles tiles = Tiles(job);
    const int64_t item_blocks = ItemBlocks(job), set_blocks = SetBlocks(job);
    const int64_t first = item * item_blocks, end = Min(first + item_blocks, job.n_blocks);
    float* sums = static_cast<float*>(scratch);
    float* waiting = sums + SetSums(job);
    void* const rest = waiting + SetSums(job);
    FinishedSet<W> finished(job, tiles);
    if (tiles.row_tiles == 1) {
      T::ConfigureRows(static_cast<int>(job.rows));
    } else {
      T::Configure();
    }
    for (int64_t block = first; block < end; block += set_blocks) {
      const int64_t next = block + set_blocks;
      const StreamSet set = {block, Min(set_blocks, end - block),
                             next < end ? next : first + job.item_step * item_blocks};
      PrefetchOutputs(job, 0, job.rows, set.block, set.blocks);
      Sets::Add(job, tiles, set, sums, rest, &finished);
      finished.AllRows();
      finished.Begin(set, sums);
      float* const free = waiting;
      waiting = sums;
      sums = free;
    }
    T::Release();
    finished.AllRows();
  }
};

}  // namespace
}  // namespace baton
