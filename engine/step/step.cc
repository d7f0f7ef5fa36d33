#include "engine/step/step.h"

#include "common/check.h"

namespace baton {

void StepBuilder::Clear() {
  tokens_.clear();
  positions_.clear();
  piece_begin_.resize(1);
  page_begin_.resize(1);
  pages_.clear();
  logit_rows_.clear();
  scored_rows_.clear();
  ropes_.clear();
}

int StepBuilder::AddPiece(std::span<const int32_t> tokens, int first_position,
                          std::span<const int32_t> pages, RopeRange rope) {
  BATON_CHECK(!tokens.empty() && first_position >= 0);
  const int first_row = n_tokens();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions_.push_back(first_position + static_cast<int32_t>(i));
  }
  ropes_.push_back(rope);
  pages_.insert(pages_.end(), pages.begin(), pages.end());
  piece_begin_.push_back(n_tokens());
  page_begin_.push_back(static_cast<int32_t>(pages_.size()));
  return first_row;
}

int StepBuilder::WantLogits(int row) {
  BATON_CHECK(row >= 0 && row < n_tokens());
  BATON_CHECK(logit_rows_.empty() || logit_rows_.back() < row);
  logit_rows_.push_back(row);
  return static_cast<int>(logit_rows_.size()) - 1;
}

int StepBuilder::WantScores(int from, int to) {
  BATON_CHECK(from >= 0 && from <= to && to <= n_tokens());
  BATON_CHECK(scored_rows_.empty() || scored_rows_.back() < from);
  const int first = static_cast<int>(scored_rows_.size());
  for (int row = from; row < to; ++row) scored_rows_.push_back(row);
  return first;
}

StepBatch StepBuilder::batch() const {
  return {tokens_, positions_,  piece_begin_, page_begin_,
          pages_,  logit_rows_, ropes_,       scored_rows_};
}

}  // namespace baton
