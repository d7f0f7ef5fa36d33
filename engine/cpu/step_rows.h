// A backend's own copy of the step or slice it computes, with the page and slot of every row looked
// up once. Reused from step to step: allocates only while it grows. Engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "engine/step/step.h"

namespace baton {

// Rows with the page tables that the attention reads; a view.
struct AttentionBatch {
  // For layers without a window: page ids.
  StepBatch plain;
  // For layers with a window: ids of whole pages. The keys of a trimmed page are all masked;
  // another whole page of the same piece takes its place, so that masked keys are finite.
  StepBatch windowed;
  const StepBatch& of(bool has_window) const { return has_window ? windowed : plain; }
};

class StepRows {
 public:
  // Copies the batch. CHECKs everything that would make the step read or write outside its memory:
  // tokens below vocab; positions below max_positions and consecutive; page tables that cover the
  // positions; pages of the pool; no trimmed page with a key that a query sees; rows with logits.
  void Assign(const StepBatch& batch, const KvPages& pages, int vocab, int max_positions);

  const AttentionBatch& attention_batch() const { return batch_; }
  const StepBatch& batch() const { return batch_.plain; }
  int n() const { return batch().n_tokens(); }
  int n_scored() const { return static_cast<int>(batch().scored_rows.size()); }
  int n_logits() const { return static_cast<int>(batch().logit_rows.size()); }
  void CheckScored(int from, int to, int max) const;  // CHECKs a call of Backend::ScoredLogits
  int token(int row) const { return batch().tokens[row]; }
  int position(int row) const { return batch().positions[row]; }
  int32_t page(int row) const { return pages_of_rows_[row]; }       // page of the row's K and V
  int slot(int row) const { return position(row) % page_tokens_; }  // place in that page
  RopeRange rope(int row) const { return ropes_[pieces_of_rows_[row]]; }
  int piece(int row) const { return pieces_of_rows_[row]; }
  // Page table of a piece, covering every key that its queries see.
  const int32_t* pages_of_piece(int piece) const {
    return batch().pages.data() + batch().page_begin[piece];
  }

 private:
  void ResolveTables(const StepBatch& batch, const KvPages& pages);

  std::vector<int32_t> tokens_, positions_, piece_begin_, page_begin_, pages_, logit_rows_;
  std::vector<int32_t> scored_rows_;
  std::vector<int32_t> windowed_pages_, pages_of_rows_, pieces_of_rows_;
  std::vector<RopeRange> ropes_;
  AttentionBatch batch_;  // views of the arrays above
  int page_tokens_ = 0;
};

// A subset of the rows of a step, for the attention: each run of consecutive rows of a piece
// becomes a piece with the same page table.
class ChosenRows {
 public:
  void Clear();
  // Adds rows [from, to) of the step, which follow all rows added before.
  void Add(const StepRows& step, int from, int to);
  AttentionBatch batch() const;
  int n() const { return static_cast<int>(positions_.size()); }

 private:
  void AddRun(const StepRows& step, int from, int to);

  int last_row_ = -1;  // last added row and its piece in the step
  int last_piece_ = -1;
  std::vector<int32_t> positions_, piece_begin_{0}, page_begin_{0}, pages_, windowed_pages_;
};

}  // namespace baton
