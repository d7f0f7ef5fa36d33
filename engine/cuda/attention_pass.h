// Arguments and work lists of the attention kernels.
//
// An M-row is a row of a matrix operation: one head of one token. A head block is at most 16 heads
// that share a KV head.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int kTileKeys = 128;
inline constexpr int kSegmentTiles = 4;
inline constexpr int kMaxHeads = 16;  // of a head block

// A tile of rows of one piece, or a piece of one row.
struct alignas(16) AttentionItem {
  int32_t row;       // of the block; -1: the list has ended
  int32_t position;  // of the first row
  int32_t pages;     // where the piece's page table begins in the block, in numbers
  int32_t more;      // rows; of a single row its first slot of partial results, -1: none
};

// Memory of the lists, and of partial results.
struct AttentionLists {
  int32_t* counts;        // chunks
  AttentionItem* chunks;  // tiles of pieces with more than one row
  AttentionItem* rows;    // pieces of one row; as many places as rows, those behind them ended
  int32_t* finished;      // (rows, head blocks) blocks of a row that have ended
  float* partials;        // (slots, head blocks, heads * (row + 4)): sums, maxima, weights
  int n_slots;
};

// Arguments of a launch.
struct AttentionPass {
  const int32_t* block;
  const uint16_t* q;
  uint16_t* out;
  const uint8_t* pages;
  int64_t page_stride;
  int page_shift;  // log2 of the tokens of a page
  int from, to;    // rows of the block; row `from` is the first of q and out
  int n_heads, n_kv_heads, window;
  int group;        // heads of a KV head
  int head_blocks;  // of a KV head
  int heads;        // of a head block, but for the last
  int n_splits;     // blocks that share the segments of a single row
  int n_shares;     // blocks of a head block that run at once
  int chunk_rows;   // M-rows of a tile of a chunk
  float factor;     // scale * log2 e
  AttentionLists lists;
};

}  // namespace baton
