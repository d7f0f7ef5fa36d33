// Tiles of rows of 64 bf16 in shared memory, in the layout that wgmma reads. Device code only.
#pragma once

#include <cstdint>

#include "engine/cuda/async_copy.cuh"

namespace baton {

inline constexpr int kTileK = 64;  // values of k in a tile: 128 bytes, the swizzle's width
inline constexpr int kTileRowBytes = kTileK * 2;

// Describes a tile of rows of 64 bf16 (128 bytes), swizzled in 128 bytes: 16-byte piece p of row r
// lies at 128 * r + 16 * (p ^ (r % 8)). Its address is a multiple of 1024. Groups of 8 rows are
// 1024 bytes apart; the distance between groups along k is not used in this layout. A step of 16
// values of k adds 32 bytes to the address.
__device__ __forceinline__ uint64_t SwizzledTile(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kRowGroupBytes = 1024;
  return kSwizzle128 | (kRowGroupBytes >> 4) << 32 | uint64_t{1} << 16 |
         (shared_address & 0x3ffff) >> 4;
}

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
    CopyPiece(shared_address + row * kTileRowBytes + (column ^ row % 8) * 16,
              matrix + source_row * k + at + column * 8, is_there);
  }
}

}  // namespace baton
