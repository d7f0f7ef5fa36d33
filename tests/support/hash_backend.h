// A tiny deterministic engine for scheduler tests: "attention" hashes every KV slot of the sequence
// that it reads through the page table, so a token comes out right only if the KV of every earlier
// position, of every layer, is in the right page and was written in the right order. A slot that
// was never written (zero) ends the test, and so does a page table without a page it reads. The
// tokens of a sequence depend on its range of rope.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/step/host_backend.h"
#include "engine/step/slice_progress.h"

namespace baton {

// Returns longrope whose short range is for sequences of at most max_short_tokens tokens.
inline RopeDesc LongropeFrom(int max_short_tokens) {
  RopeDesc rope;
  rope.scaling = RopeDesc::Scaling::kLongrope;
  rope.original_max_position_embeddings = max_short_tokens;
  return rope;
}

class HashBackend : public HostBackend {
 public:
  static constexpr int kVocab = 61;

  // windows: tokens, one per layer; 0 or empty: none.
  explicit HashBackend(int page_tokens = 4, int n_layers = 3, std::vector<int> windows = {},
                       const RopeDesc& rope = {}) {
    model_.rope = rope;
    model_.name = "hash";
    model_.n_layers = n_layers;
    model_.vocab = kVocab;
    model_.max_positions = 4096;
    layout_.page_tokens = page_tokens;
    const int64_t plane = int64_t{page_tokens} * 8;
    windows.resize(static_cast<size_t>(n_layers));
    for (int layer = 0; layer < n_layers; ++layer)
      layout_.planes.push_back({.offset = layer * plane, .bytes = plane});
    layout_.page_bytes = n_layers * plane;
    layout_.SetWindows(windows);
    model_.windows = std::move(windows);
  }

  const ModelDesc& model() const override { return model_; }
  const KvLayout& kv_layout() const override { return layout_; }
  std::string numerics_id() const override { return "hash"; }
  uint64_t model_fingerprint() const override { return 1; }
  std::string isa() const override { return "hash"; }
  StepLimits limits() const override { return limits_; }
  WeightMemory weight_memory() const override { return {}; }
  void SetPages(const KvPages& pages) override { pages_ = pages; }

  void set_limits(const StepLimits& limits) { limits_ = limits; }
  void set_max_positions(int n) { model_.max_positions = n; }
  // Takes prompts of tokens below n; generates those below kVocab.
  void set_vocab(int n) { model_.vocab = n; }

  void Begin(const StepBatch& batch) override {
    step_.Assign(batch, layout_.page_tokens);
    next_layer_ = 0;
  }

  void RunLayers(int from, int to) override {
    BATON_CHECK(from == next_layer_ && to > from && to <= model_.n_layers);
    next_layer_ = to;
    const int n = static_cast<int>(step_.rows.size());
    for (int layer = from; layer < to; ++layer) {
      Project(step_, layer, 0, n);
      Finish(step_, layer, 0, n);
    }
    if (to == model_.n_layers) MakeLogits(step_);
  }

  std::span<const float> logits(int i) const override {
    BATON_CHECK(next_layer_ == model_.n_layers);
    return std::span(step_.logits).subspan(static_cast<size_t>(i) * kVocab, kVocab);
  }

  std::span<const float> ScoredLogits(int from, int to) override {
    BATON_CHECK(next_layer_ == model_.n_layers && from < to && to - from <= kScoredAtOnce);
    scored_logits_.clear();
    for (const int32_t row : std::span(step_.scored_rows).subspan(from, to - from))
      AppendLogits(step_.rows[row], &scored_logits_);
    return scored_logits_;
  }

  void BeginSlice(const StepBatch& batch) override {
    BATON_CHECK(batch.n_pieces() == 1 && batch.logit_rows.size() <= 1);
    BATON_CHECK(batch.scored_rows.empty());
    BATON_CHECK(batch.logit_rows.empty() || batch.logit_rows[0] == batch.n_tokens() - 1);
    slice_.Assign(batch, layout_.page_tokens);
    progress_.Begin(model_.n_layers, batch.n_tokens(), batch.n_tokens(), !batch.logit_rows.empty());
  }
  void ProjectSlice(int layer, int from, int to) override {
    progress_.Project(layer, from, to);
    Project(slice_, layer, from, to);
  }
  // Reads the keys, so that a missing one ends the test.
  void AttendSlice(int layer, int from, int to, int end_key) override {
    progress_.Attend(layer, from, to);
    BATON_CHECK(limits_.slice_keys > 0 && end_key % limits_.slice_keys == 0);
    for (int row = from; row < to; ++row) AttendTo(slice_, slice_.rows[row], layer, end_key);
  }
  void FinishSlice(int layer, int from, int to) override {
    progress_.Finish(layer, from, to);
    Finish(slice_, layer, from, to);
    if (layer + 1 == model_.n_layers && progress_.IsLogitRow(to)) MakeLogits(slice_);
  }
  std::span<const float> slice_logits() const override {
    BATON_CHECK(progress_.has_logits());
    return slice_.logits;
  }

 private:
  struct Row {
    int first_page, position;
    uint64_t hidden;
    int met = 0;  // keys of this layer that `hidden` has read
  };
  // The rows of a step or a slice.
  struct Computed {
    std::vector<Row> rows;
    std::vector<int32_t> pages, logit_rows, scored_rows;
    std::vector<float> logits;

    void Assign(const StepBatch& batch, int page_tokens) {
      rows.clear();
      logits.clear();
      pages.assign(batch.pages.begin(), batch.pages.end());
      logit_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
      scored_rows.assign(batch.scored_rows.begin(), batch.scored_rows.end());
      for (int piece = 0; piece < batch.n_pieces(); ++piece)
        for (int row = batch.piece_begin[piece]; row < batch.piece_begin[piece + 1]; ++row) {
          BATON_CHECK(batch.positions[row] / page_tokens <
                      batch.page_begin[piece + 1] - batch.page_begin[piece]);
          rows.push_back({.first_page = batch.page_begin[piece],
                          .position = batch.positions[row],
                          .hidden = Mix(0x5eed + static_cast<uint64_t>(batch.ropes[piece]),
                                        batch.tokens[row])});
        }
    }
  };

  void Project(const Computed& c, int layer, int from, int to) {
    for (int i = from; i < to; ++i) {
      const Row& row = c.rows[i];
      const uint64_t value = Mix(row.hidden, Mix(layer + 1, row.position)) | 1;
      std::memcpy(Slot(c, row, layer, row.position), &value, 8);
    }
  }
  void AttendTo(const Computed& c, Row& row, int layer, int end) const {
    const int window = model_.windows[static_cast<size_t>(layer)];
    const int first = window == 0 ? 0 : std::max(0, row.position + 1 - window);
    end = std::min(end, row.position + 1);
    for (int position = std::max(row.met, first); position < end; ++position) {
      uint64_t value = 0;
      std::memcpy(&value, Slot(c, row, layer, position), 8);
      BATON_CHECK(value != 0);
      row.hidden = Mix(row.hidden, value);
    }
    row.met = std::max(row.met, end);
  }
  void Finish(Computed& c, int layer, int from, int to) const {
    for (int i = from; i < to; ++i) {
      AttendTo(c, c.rows[i], layer, c.rows[i].position + 1);
      c.rows[i].met = 0;
    }
  }
  static void MakeLogits(Computed& c) {
    for (const int32_t row : c.logit_rows) AppendLogits(c.rows[row], &c.logits);
  }
  static void AppendLogits(const Row& row, std::vector<float>* logits) {
    for (int token = 0; token < kVocab; ++token)
      logits->push_back(static_cast<float>(Mix(row.hidden, token) % 8192) / 1024.0f);
  }
  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ std::rotl(b * 0x9e3779b97f4a7c15, 29);
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return x ^ (x >> 32);
  }
  std::byte* Slot(const Computed& c, const Row& row, int layer, int position) const {
    const int32_t entry = c.pages[row.first_page + position / layout_.page_tokens];
    BATON_CHECK(IsWhole(entry) || (PageOf(entry) >= 0 && !layout_.planes[layer].has_window));
    return pages_.plane(PageOf(entry), layer) + (position % layout_.page_tokens) * 8;
  }

  ModelDesc model_;
  KvLayout layout_;
  KvPages pages_;
  Computed step_, slice_;
  std::vector<float> scored_logits_;
  int next_layer_ = 0;      // the next layer of the step
  SliceProgress progress_;  // progress of the slice
  StepLimits limits_;
};

}  // namespace baton
