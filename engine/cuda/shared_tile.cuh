// Copies rows of 64 bf16 from global to shared memory in the layout that wgmma reads
// (SwizzledTile in wgmma.cuh), by cp.async. Device code only.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int kTileK = 64;  // values of k in a tile: 128 bytes, the swizzle's width
inline constexpr int kTileRowBytes = kTileK * 2;

// Starts the copies of `kRows` rows from `first_row` on, values [at, at + 64) of each; rows beyond
// `n_rows` become zeros. All `kThreads` threads of the block call it.
template <int kRows, int kThreads>
__device__ __forceinline__ void CopyTile(uint32_t shared_address, const uint16_t* matrix,
                                         int first_row, int n_rows, int k, int at) {
  constexpr int kPieces = kRows * 8;  // of 16 bytes
#pragma unroll
  for (int i = 0; i < (kPieces + kThreads - 1) / kThreads; ++i) {
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    if (kPieces % kThreads != 0 && piece >= kPieces) break;
    const int row = piece / 8, column = piece % 8;
    const bool is_there = first_row + row < n_rows;
    const int64_t source_row = is_there ? first_row + row : 0;
    const uint16_t* source = matrix + source_row * k + at + column * 8;
    const uint32_t target = shared_address + row * kTileRowBytes + (column ^ row % 8) * 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
                 "r"(is_there ? 16 : 0)
                 : "memory");
  }
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kGroups committed groups of this thread are under way.
template <int kGroups>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Lets wgmma see what this thread has written to shared memory; a barrier must follow.
__device__ __forceinline__ void ShowToWgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace baton
