// Stands in for engine/cuda/block_count.cuh: blocks run one after another.
#pragma once

#include <cstdint>

namespace baton {

inline uint32_t CountBlock(uint32_t* count) { return (*count)++; }

}  // namespace baton
