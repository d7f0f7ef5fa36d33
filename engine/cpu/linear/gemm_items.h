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
