// A step or slice as one block of plain numbers, which a single copy brings to a device: the host
// writes it into a staging slot, kernels read it. All numbers are int32, in the host's order:
//   counts (BlockCounts), tokens, positions, piece_begin, page_begin, pages, logit_rows,
//   scored_rows, ropes
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step/step.h"

namespace baton {

struct BlockCounts {
  int32_t n_tokens = 0, n_pieces = 0, n_pages = 0, n_logits = 0, n_scored = 0;
  int64_t bytes() const;  // of the block, the counts included
};

// Rows that fill a step up to the number that a graph was captured for. Each is a sequence of its
// own, at position 0 of a page that belongs to nobody, with logits that nobody reads.
struct Padding {
  int n_rows = 0;
  int32_t page = 0;
};

BlockCounts CountsOf(const StepBatch& batch, const Padding& padding);
// Counts of the largest step: max_tokens rows, each a sequence of max_pages pages.
BlockCounts MaxCounts(int max_tokens, int max_pieces, int max_pages);
// `to` has room for CountsOf(batch, padding).bytes(). Padding asks that all rows have logits and
// none is scored (CHECKed).
void WriteBlock(const StepBatch& batch, const Padding& padding, std::byte* to);

// A block as the kernels read it.
class BlockStep {
 public:
  // `block` has counts.bytes() bytes.
  BlockStep(const BlockCounts& counts, const std::byte* block);
  BlockStep(const BlockStep&) = delete;
  BlockStep& operator=(const BlockStep&) = delete;

  std::span<int32_t> tokens() { return tokens_; }
  StepBatch batch() const;

 private:
  std::vector<int32_t> tokens_, positions_, piece_begin_, page_begin_, pages_, logit_rows_;
  std::vector<int32_t> scored_rows_;
  std::vector<RopeRange> ropes_;
};

}  // namespace baton
