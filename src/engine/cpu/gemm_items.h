// How a linear layer is cut into the items that threads claim, for every kind of weights on vector
// registers. No bit depends on it. For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear_job.h"

namespace baton {
namespace {

constexpr int64_t kLeastItemBlocks = 4;  // 16-output blocks of a work item

// Few rows: as many blocks, `most` of them, as leave every member of the pool four items. They are
// parallel streams from memory, and many of them are faster than one. An item is whole tiles of
// `tile` blocks, and an even number of blocks, for gated layers pair them.
inline int64_t ItemBlocks(const LinearJob& job, int64_t tile, int64_t most) {
  const int64_t least = tile % 2 == 0 ? tile : 2 * tile;
  int64_t blocks = least < most ? most / least * least : most;
  while (blocks / 2 >= kLeastItemBlocks && job.n_blocks < 4 * job.members * blocks) blocks /= 2;
  return blocks;
}

// Blocks of a direct tile whose sums stay in 32 registers, one block each. A tile of few vectors
// and many rows has an operand to load for each multiplication or two, and some machines load one
// zmm a cycle while they multiply two.
constexpr int ZmmTileBlocks(int rows) {
  if (rows <= 2) return 16 / rows;
  return rows <= 4 ? 6 : rows <= 6 ? 4 : rows <= 8 ? 3 : 2;
}

}  // namespace
}  // namespace baton
