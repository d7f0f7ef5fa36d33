// A backend's own copy of the step it computes, with the page and slot of every row looked up once.
// Reused from step to step: allocates only while it grows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/step.h"

namespace baton {

class StepRows {
 public:
  // CHECKs what would make the step read or write elsewhere: tokens below vocab, positions below
  // max_positions and consecutive, page tables that cover them, pages of the pool, none trimmed of
  // which a query sees a key.
  void Assign(const StepBatch& batch, const KvPool& pool, int vocab, int max_positions);

  // Its page table for layers without a window: ids.
  const StepBatch& batch() const { return batch_; }
  // For layers with one: ids of whole pages. Of pages that were trimmed all keys are masked; what
  // stands for them is a whole page of the same piece, so that masked keys are finite.
  const StepBatch& windowed_batch() const { return windowed_batch_; }
  int n() const { return batch_.n_tokens(); }
  int n_logits() const { return static_cast<int>(batch_.logit_rows.size()); }
  int token(int row) const { return batch_.tokens[row]; }
  int position(int row) const { return batch_.positions[row]; }
  int32_t page(int row) const { return pages_of_rows_[row]; }  // page that holds the row's K and V
  int slot(int row) const { return batch_.positions[row] % page_tokens_; }  // and its place there
  RopeRange rope(int row) const { return ropes_[pieces_of_rows_[row]]; }
  int piece(int row) const { return pieces_of_rows_[row]; }
  // Page table of a piece, for every key that its queries see.
  const int32_t* pages_of_piece(int piece) const {
    return batch_.pages.data() + batch_.page_begin[piece];
  }

 private:
  std::vector<int32_t> tokens_, positions_, piece_begin_, page_begin_, pages_, logit_rows_;
  void ResolveTables(const StepBatch& batch, const KvPool& pool);

  std::vector<int32_t> windowed_pages_, pages_of_rows_, pieces_of_rows_;
  std::vector<RopeRange> ropes_;
  StepBatch batch_, windowed_batch_;  // views of the arrays above
  int page_tokens_ = 0;
};

}  // namespace baton
