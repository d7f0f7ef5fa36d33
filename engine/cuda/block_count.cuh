// Which block of several is the last one to come, in memory of the GPU. Device code only.
#pragma once

#include <cstdint>

namespace baton {

// Counts a block, by one of its threads and after a barrier of it. Returns how many came before;
// what these have written is there for all threads of the block behind its next barrier.
__device__ __forceinline__ uint32_t CountBlock(uint32_t* count) {
  uint32_t n_before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(n_before)
               : "l"(__cvta_generic_to_global(count))
               : "memory");
  return n_before;
}

}  // namespace baton
