// How a linear layer is cut into the items that threads claim, for every kind of weights on vector
// registers. No bit depends on it. For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear_job.h"

namespace baton {
namespace {

constexpr int64_t kLeastItemBlocks = 4;  // 16-output blocks of a work item

// Few rows: as many blocks, `most` of them, as leave every member of the pool four items. They are
// parallel streams from memory, and many of them are faster than one.
inline int64_t ItemBlocks(const LinearJob& job, int64_t most) {
  int64_t blocks = most;
  while (blocks > kLeastItemBlocks && job.n_blocks < 4 * job.members * blocks) blocks /= 2;
  return blocks;
}

}  // namespace
}  // namespace baton
