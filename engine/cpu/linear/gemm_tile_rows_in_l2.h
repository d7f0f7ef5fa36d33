// Nest for many rows whose packed form fits into L2: the rows stay there from item to item, a pair
// of blocks stays in L1 for a K block, and weights come from memory once (gemm_tile_nest.h).
//
//                      2 blocks
//                     +---------+
//   K block, 16 tiles | 32 KiB  |  stays in L1 for all squares; the next K block's is prefetched
//                     +---------+
//   rows  +------+    +---------+
//   0..31 |      | -> | square  |  rows are read from L2 past L1
//         +------+    +---------+
//  32..63 |      | -> | square  |
//         +------+    +---------+
//
// Measured on an AMX Xeon with 2 cores, 512 rows, K 2,048, weights from memory: int8 6.9 TOP/s
// where the nest of weights in L2 gives 6.05-6.35, and 6.0 in two panels of 256 rows. bf16 of 256
// rows 3.0-3.15 TF (as the other nest), of 512 (2 MiB) 2.0: so rows of 1 MiB are the most
// (LinearFormOf). For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_nest.h"

namespace baton {
namespace {

struct RowsInL2 {
  static constexpr bool kRowsOnce = true;
  static constexpr bool kRowsAhead = false;
  static constexpr int64_t kPartBlocks = 2;
  // Gated layers take two pairs, so that their outputs are whole lines.
  static int64_t ItemBlocks(const LinearJob& job) { return IsGated(job.epilogue) ? 4 : 2; }
  // L1 has room for the sums of this many rows.
  static constexpr int64_t kNearRows = 128;
  static bool SumsAhead(const LinearJob& job) { return job.rows > kNearRows; }
  // 512 rows of int8, TOP/s: 8 k tiles 6.5, 12 6.4, 16 6.9 (without prefetched sums 6.4). Few rows
  // of bf16, GB/s of weights with 4, 8, 16 k tiles: 64 rows 23.8, 24.5, 23.4, 96 rows 20.5, 22.7,
  // 23.0, 128 rows 17.8, 21.3, 21.2.
  static int64_t BlockTiles(const LinearJob& job) { return job.rows <= kNearRows ? 8 : 16; }
};

}  // namespace
}  // namespace baton
