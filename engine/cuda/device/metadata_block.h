// A step or slice as one block of plain numbers, which a single copy brings to a device: the host
// writes it into a staging slot, kernels read it. All numbers are int32, in the host's order:
//   counts (BlockCounts), tokens, positions, piece_begin, page_begin, pages, frames, logit_rows,
//   scored_rows, ropes
// Frames of pages whose planes lie apart travel with the page tables, as they are when the step is
// submitted: a device keeps no table of them. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/kv_pages.h"
#include "engine/step/step.h"

namespace baton {

struct BlockCounts {
  int32_t n_tokens = 0, n_pieces = 0, n_pages = 0, n_logits = 0, n_scored = 0;
  int32_t n_planes = 0;   // of a page that have frames: all, or none if planes do not lie apart
  int64_t bytes() const;  // of the block, the counts included
};

// A step's rows may be filled up to the number that a graph was captured for. Each row of this
// padding is a sequence of its own, with logits that nobody reads, at position 0 of a page that
// belongs to nobody: its id is that behind the pool's, its bytes lie behind the pool's.

BlockCounts CountsOf(const StepBatch& batch, int n_padding, const KvLayout& layout);
// Counts of the largest step: max_tokens rows, each a sequence of max_pages pages.
BlockCounts MaxCounts(int max_tokens, int max_pieces, int max_pages, const KvLayout& layout);
// `to` has room for CountsOf(batch, n_padding, *pages.layout).bytes(). Padding asks that all rows
// have logits and none is scored (CHECKed).
void WriteBlock(const StepBatch& batch, int n_padding, const KvPages& pages, std::byte* to);

// A block as the kernels read it.
class BlockStep {
 public:
  // `block` has counts.bytes() bytes.
  BlockStep(const BlockCounts& counts, const std::byte* block);
  BlockStep(const BlockStep&) = delete;
  BlockStep& operator=(const BlockStep&) = delete;

  std::span<int32_t> tokens() { return tokens_; }
  std::span<const int32_t> frames() const { return frames_; }  // (n_pages, n_planes)
  StepBatch batch() const;

 private:
  std::vector<int32_t> tokens_, positions_, piece_begin_, page_begin_, pages_, frames_, logit_rows_;
  std::vector<int32_t> scored_rows_;
  std::vector<RopeRange> ropes_;
};

}  // namespace baton
