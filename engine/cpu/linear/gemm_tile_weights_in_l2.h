// Nest for many rows whose packed form is larger than L2: an item's weights stay in L2 for a K
// block, a pair of row tiles in L1, and rows come from L3 (gemm_tile_nest.h).
//
//                      16 blocks of the item: 256 KiB in L2
//                     +----+----+----+----+ ... +----+
//   K block, 512 k    |    |    |    |    |     |    |   each square reads two of them once
//                     +----+----+----+----+ ... +----+
//   rows  +------+    +---------+---------+ ... +----+
//   0..31 |32 KiB| -> | square  | square  |     |    |   the row pair stays in L1 for all squares;
//         +------+    +---------+---------+ ... +----+   the next one is prefetched to L2 meanwhile
//  32..63 |      | -> | square  |         |     |    |
//         +------+    +---------+---------+ ... +----+
//
// Measured on an AMX Xeon with 2 cores, bf16, 512 rows, K 2,048, weights from memory, TF: 8 blocks,
// no load past L1, loads between products 2.1-2.2; weights past L1 2.55; loads first 2.61; sums
// prefetched 2.65; 16 blocks 2.92; rows prefetched 3.06; outputs past the caches 3.10-3.15.
// For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_nest.h"

namespace baton {
namespace {

struct WeightsInL2 {
  static constexpr bool kRowsOnce = false;
  static constexpr bool kRowsAhead = true;
  // 24 blocks: 2.9 TF, 32: 2.8, because weights and sums leave L2; if blocks are powers of two
  // apart (K 8,192), 24 share few sets of L2 and fall to 2.6.
  static constexpr int64_t kPartBlocks = 16;
  // Blocks of an item, so that every member gets the same number of items: whole pairs, or pairs of
  // pairs.
  static int64_t ItemBlocks(const LinearJob& job) {
    const int64_t at_once = DivideUp(job.n_blocks, kPartBlocks * job.members);
    const int64_t pairs = IsGated(job.epilogue) ? 4 : 2;
    return DivideUp(DivideUp(job.n_blocks, at_once * job.members), pairs) * pairs;
  }
  // With 16 k tiles a pair of row tiles is 32 KiB. 8 k tiles: 3.12 TF, 12: 3.16, 20: 2.84, 32:
  // 2.31.
  static int64_t BlockTiles(const LinearJob& /*job*/) { return 16; }
  static bool SumsAhead(const LinearJob& /*job*/) { return true; }
};

}  // namespace
}  // namespace baton
