// Cuts a linear layer into the items that threads claim, for every kind of weights, on vector
// registers and on tiles. The cut changes no bit. For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

constexpr int64_t kMinItemBlocks = 4;  // 16-output blocks of a work item

// Returns the blocks per item for few rows: whole tiles of `tile` blocks if one fits into the
// limit, then halved until every member of the pool gets four items or a half would be too small.
// The blocks are parallel streams from memory, and many streams are faster than one. The number is
// even, because gated layers pair blocks.
inline int64_t ItemBlocks(const LinearJob& job, int64_t tile, int64_t max) {
  const int64_t min = tile % 2 == 0 ? tile : 2 * tile;
  int64_t blocks = min < max ? max / min * min : max;
  while (blocks / 2 >= kMinItemBlocks && job.n_blocks < 4 * job.members * blocks)
    blocks = blocks / 4 * 2;
  return blocks;
}

// A work item: its blocks, and the first block of the item that its member most likely claims next
// (it need not exist).
struct Item {
  int64_t first, blocks, next;
};

// The items of a layer. The last ones, as many as the pool has members, are cut again into short
// items of `last_blocks`, a divisor of `blocks`: a member that finds no item waits for those that
// still compute one, half of it on average, and meanwhile memory gives less than it could.
//
//   22 blocks, 2 members, items of 4, short ones of 2     0-3 4-7 8-11 | 12-13 14-15 .. 20-21
//
// (AMX Xeon, 2 cores, decode of one bf16 stream, with and without short items in turns in one
// program: 1B shape 1.017 times as fast, twice; 125M shape 1.004. Where a set of tiles is an item
// of its own, nothing: its outputs are written with no products beside.)
class ItemCut {
 public:
  ItemCut(const LinearJob& job, int64_t blocks, int64_t last_blocks)
      : n_blocks_(job.n_blocks),
        step_(job.item_step),
        blocks_(blocks),
        last_blocks_(last_blocks),
        long_(last_blocks_ < blocks ? job.n_blocks / blocks - job.members : 0) {
    if (long_ < 0) long_ = 0;
  }

  int64_t count() const {
    return long_ + (n_blocks_ - long_ * blocks_ + last_blocks_ - 1) / last_blocks_;
  }
  Item At(int64_t item) const {
    const int64_t first = First(item), end = First(item + 1);
    return {first, (end < n_blocks_ ? end : n_blocks_) - first, First(item + step_)};
  }

 private:
  int64_t First(int64_t item) const {
    const int64_t of_long = item < long_ ? item : long_;
    return of_long * blocks_ + (item - of_long) * last_blocks_;
  }

  int64_t n_blocks_, step_, blocks_, last_blocks_;
  int64_t long_;  // items before the short ones
};

// Cuts the rows of a job into register tiles of policy V (gemm_vector.h): as few and as even as
// possible. The first `large` tiles have `rows` rows, the others one less.
template <class V>
struct RowTiles {
  int64_t count, rows, large;

  explicit RowTiles(const LinearJob& job)
      : count(CountOf(job.rows)),
        rows((job.rows + count - 1) / count),
        large(job.rows - count * (rows - 1)) {}
  int64_t RowsBefore(int64_t tile) const {
    const int64_t small = tile - large;
    return tile * rows - (small > 0 ? small : 0);
  }

  // One item packs the rows of a tile, or one row if a single tile holds them all: members share
  // the work of a batch that is decoded.
  int64_t PackItems() const { return count > 1 ? count : rows; }
  struct PackedRows {
    int64_t first, end;            // rows of the item
    int64_t tile_first, tile_end;  // rows of their tile
  };
  PackedRows RowsOfItem(int64_t item) const {
    if (count == 1) return {item, item + 1, 0, rows};
    const int64_t first = RowsBefore(item), end = RowsBefore(item + 1);
    return {first, end, first, end};
  }

 private:
  static int64_t CountOf(int64_t rows) {
    if (rows <= V::kDirectTileRows) return 1;
    const int64_t largest = rows <= V::kDirectRows ? V::kDirectTilesRows : V::kTileRows;
    return (rows + largest - 1) / largest;
  }
};

// True if jobs of several direct tiles may have tiles of kRows rows.
template <class V, int kRows>
constexpr bool kIsOneOfSeveral = kRows <= V::kDirectTilesRows && 2 * kRows > V::kDirectTilesRows;

// Blocks of a direct tile whose sums stay in 32 registers, one block each. A tile of few vectors
// and many rows loads an operand for every one or two multiplications, and some machines load one
// zmm a cycle while they multiply two.
constexpr int ZmmTileBlocks(int rows) {
  if (rows <= 2) return 16 / rows;
  return rows <= 4 ? 6 : rows <= 6 ? 4 : rows <= 8 ? 3 : 2;
}

}  // namespace
}  // namespace baton
