// Queries of a tile of rows in shared memory. Device code: nothing of CUDA's runtime, so that tests
// can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/attention_tile.cuh"

namespace baton {
namespace {

template <int kRow, int kWarps>
constexpr int kQueryBytes = kWarps * 16 * kRow * 2;

// Returns which head of q and out an M-row of the block's tile is, counted over all rows; -1: none.
__device__ __forceinline__ int HeadOfRow(const AttentionPass& pass, const AttentionItem& item,
                                         const HeadBlock& heads, int row) {
  const int token = row / pass.heads, head = row % pass.heads;
  if (token >= item.more || head >= heads.n) return -1;
  return (item.row - pass.from + token) * pass.n_heads + heads.first + head;
}

// Returns the address of 16-byte piece `column` of an M-row's query.
template <int kWarps>
__device__ __forceinline__ uint32_t PieceOfQuery(uint32_t queries, int row, int column) {
  return queries + column / 8 * kWarps * 16 * 128 + row * 128 + ((column ^ row) & 7) * 16;
}

// Starts the copies of the queries of the block's tile; what is no row becomes zeros.
template <int kRow, int kWarps>
__device__ __forceinline__ void CopyQueries(uint32_t target, const AttentionPass& pass,
                                            const AttentionItem& item, const HeadBlock& heads) {
  constexpr int kColumns = kRow / 8;
  const int column = threadIdx.x % kColumns;
#pragma unroll 1
  for (int row = threadIdx.x / kColumns; row < kWarps * 16; row += kWarps * 32 / kColumns) {
    const int at = HeadOfRow(pass, item, heads, row);
    CopyPiece(PieceOfQuery<kWarps>(target, row, column),
              pass.q + int64_t{at < 0 ? 0 : at} * kRow + column * 8, at >= 0);
  }
}

}  // namespace
}  // namespace baton
