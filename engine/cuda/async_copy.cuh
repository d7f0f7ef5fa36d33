// Copies from global to shared memory that end later (cp.async), as PTX, loads of what they
// brought, and what makes it visible to wgmma. Device code only.
#pragma once

#include <cstdint>

namespace baton {

// Returns the address of the block's dynamic shared memory.
__device__ __forceinline__ uint32_t SharedBase() {
  extern __shared__ uint8_t shared[];
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Starts to copy 16 bytes, or to write 16 zeros if `is_there` is false.
__device__ __forceinline__ void CopyPiece(uint32_t target, const uint16_t* source, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kGroups committed groups of this thread are under way.
template <int kGroups>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Reads 4 bytes, after a wait for the copy and a barrier.
__device__ __forceinline__ uint32_t LoadShared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

// Lets wgmma see what this thread has written to shared memory; a barrier must follow.
__device__ __forceinline__ void ShowToWgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace baton
