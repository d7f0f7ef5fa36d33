#include "engine/cpu/step_rows.h"

#include <algorithm>

#include "common/check.h"

namespace baton {

void StepRows::Assign(const StepBatch& batch, const KvPages& pages, int vocab, int max_positions) {
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  positions_.assign(batch.positions.begin(), batch.positions.end());
  piece_begin_.assign(batch.piece_begin.begin(), batch.piece_begin.end());
  page_begin_.assign(batch.page_begin.begin(), batch.page_begin.end());
  logit_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  scored_rows_.assign(batch.scored_rows.begin(), batch.scored_rows.end());
  ropes_.assign(batch.ropes.begin(), batch.ropes.end());
  page_tokens_ = pages.layout->page_tokens;
  pages_of_rows_.clear();
  pieces_of_rows_.clear();

  BATON_CHECK(positions_.size() == tokens_.size());
  BATON_CHECK(ropes_.size() + 1 == piece_begin_.size());
  BATON_CHECK(piece_begin_.size() == page_begin_.size() && piece_begin_.front() == 0);
  BATON_CHECK(piece_begin_.back() == static_cast<int>(tokens_.size()));
  BATON_CHECK(page_begin_.back() == static_cast<int>(batch.pages.size()));
  ResolveTables(batch, pages);
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int first_row = piece_begin_[piece];
    const int n_pages = page_begin_[piece + 1] - page_begin_[piece];
    for (int row = first_row; row < piece_begin_[piece + 1]; ++row) {
      const int position = positions_[row];
      BATON_CHECK(tokens_[row] >= 0 && tokens_[row] < vocab);
      BATON_CHECK(position >= 0 && position < max_positions);
      BATON_CHECK(position == positions_[first_row] + row - first_row);
      BATON_CHECK(position / page_tokens_ < n_pages);
      const int32_t page = pages_of_piece(piece)[position / page_tokens_];
      pages_of_rows_.push_back(page);
      pieces_of_rows_.push_back(piece);
    }
  }
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    BATON_CHECK(logit_rows_[i] >= 0 && logit_rows_[i] < n());
    BATON_CHECK(i == 0 || logit_rows_[i - 1] < logit_rows_[i]);
  }
  for (size_t i = 0; i < scored_rows_.size(); ++i) {
    const int32_t row = scored_rows_[i];
    BATON_CHECK(row >= 0 && row < n() && (i == 0 || scored_rows_[i - 1] < row));
    BATON_CHECK(!std::binary_search(logit_rows_.begin(), logit_rows_.end(), row));
  }
}

void StepRows::CheckScored(int from, int to, int max) const {
  BATON_CHECK(from >= 0 && from < to && to <= n_scored() && to - from <= max);
}

void StepRows::ResolveTables(const StepBatch& batch, const KvPages& pages) {
  const KvLayout& layout = *pages.layout;
  const bool has_windows = layout.n_windows() > 0;
  const bool all_windows = layout.n_windows() == layout.n_layers();
  pages_.clear();
  windowed_pages_.clear();
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const auto entries =
        batch.pages.subspan(static_cast<size_t>(page_begin_[piece]),
                            static_cast<size_t>(page_begin_[piece + 1] - page_begin_[piece]));
    BATON_CHECK(piece_begin_[piece] < piece_begin_[piece + 1]);
    const int passed = layout.PagesPassed(positions_[piece_begin_[piece]]);
    const auto stand_in = std::find_if(entries.begin(), entries.end(), IsWhole);
    BATON_CHECK(stand_in != entries.end() && stand_in - entries.begin() <= passed);
    for (size_t i = 0; i < entries.size(); ++i) {
      const int32_t entry = entries[i];
      BATON_CHECK(PageOf(entry) < pages.n_ids && (entry != kNoPage || all_windows));
      BATON_CHECK(IsWhole(entry) || static_cast<int>(i) < passed);
      pages_.push_back(PageOf(entry));
      if (has_windows) windowed_pages_.push_back(IsWhole(entry) ? entry : *stand_in);
    }
  }
  batch_.plain = {tokens_, positions_,  piece_begin_, page_begin_,
                  pages_,  logit_rows_, ropes_,       scored_rows_};
  batch_.windowed = batch_.plain;
  batch_.windowed.pages = windowed_pages_;
}

void ChosenRows::Clear() {
  last_row_ = last_piece_ = -1;
  positions_.clear();
  piece_begin_.resize(1);
  page_begin_.resize(1);
  pages_.clear();
  windowed_pages_.clear();
}

void ChosenRows::Add(const StepRows& step, int from, int to) {
  while (from < to) {
    const int end = std::min(to, step.batch().piece_begin[step.piece(from) + 1]);
    AddRun(step, from, end);
    from = end;
  }
}

void ChosenRows::AddRun(const StepRows& step, int from, int to) {
  const auto append = [](std::span<const int32_t> values, int begin, int end,
                         std::vector<int32_t>& out) {
    out.insert(out.end(), values.begin() + begin, values.begin() + end);
  };
  const auto& [plain, windowed] = step.attention_batch();
  const int piece = step.piece(from);
  const bool goes_on = piece == last_piece_ && from == last_row_ + 1;
  last_piece_ = piece;
  last_row_ = to - 1;
  append(plain.positions, from, to, positions_);
  if (goes_on) {
    piece_begin_.back() = n();
    return;
  }
  const int first_page = plain.page_begin[piece], end_page = plain.page_begin[piece + 1];
  append(plain.pages, first_page, end_page, pages_);
  if (!windowed.pages.empty()) append(windowed.pages, first_page, end_page, windowed_pages_);
  piece_begin_.push_back(n());
  page_begin_.push_back(static_cast<int32_t>(pages_.size()));
}

AttentionBatch ChosenRows::batch() const {
  AttentionBatch batch;
  batch.plain.positions = positions_;
  batch.plain.piece_begin = piece_begin_;
  batch.plain.page_begin = page_begin_;
  batch.plain.pages = pages_;
  batch.windowed = batch.plain;
  batch.windowed.pages = windowed_pages_;
  return batch;
}

}  // namespace baton
