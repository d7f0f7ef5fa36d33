// A tiny deterministic engine for scheduler tests: "attention" hashes every KV slot of the sequence
// that it actually reads through the page table, so a token comes out right only if every earlier
// position's KV, of every layer, is in the right page, and was written in the right order. A slot
// that was never written (zero) ends the test, and so does a page table without a page it reads.
// What a sequence makes depends on its range of rope.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/backend.h"
#include "engine/sampler.h"

namespace baton {

// longrope whose short range is of sequences up to so many tokens.
inline RopeDesc LongropeFrom(int most_short_tokens) {
  RopeDesc rope;
  rope.scaling = RopeDesc::Scaling::kLongrope;
  rope.original_max_position_embeddings = most_short_tokens;
  return rope;
}

class HashBackend : public Backend {
 public:
  static constexpr int kVocab = 61;

  // windows: of each layer, tokens; 0 or none given: none.
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
  WeightMemory weight_memory() const override { return {}; }
  void SetPool(KvPool* pool) override { pool_ = pool; }

  void Begin(const StepBatch& batch) override {
    rows_.clear();
    logits_.clear();
    next_layer_ = 0;
    pages_.assign(batch.pages.begin(), batch.pages.end());
    logit_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
    for (int piece = 0; piece < batch.n_pieces(); ++piece)
      for (int row = batch.piece_begin[piece]; row < batch.piece_begin[piece + 1]; ++row) {
        CHECK(batch.positions[row] / layout_.page_tokens <
              batch.page_begin[piece + 1] - batch.page_begin[piece]);
        rows_.push_back(
            {.first_page = batch.page_begin[piece],
             .position = batch.positions[row],
             .hidden = Mix(0x5eed + static_cast<uint64_t>(batch.ropes[piece]), batch.tokens[row])});
      }
  }

  void RunLayers(int from, int to) override {
    CHECK(from == next_layer_ && to > from && to <= model_.n_layers);
    next_layer_ = to;
    for (int layer = from; layer < to; ++layer) {
      for (const Row& row : rows_) {
        const uint64_t value = Mix(row.hidden, Mix(layer + 1, row.position)) | 1;
        std::memcpy(Slot(row, layer, row.position), &value, 8);
      }
      for (Row& row : rows_) {
        uint64_t hidden = row.hidden;
        const int window = model_.windows[static_cast<size_t>(layer)];
        const int first = window == 0 ? 0 : std::max(0, row.position + 1 - window);
        for (int position = first; position <= row.position; ++position) {
          uint64_t value = 0;
          std::memcpy(&value, Slot(row, layer, position), 8);
          CHECK(value != 0);
          hidden = Mix(hidden, value);
        }
        row.hidden = hidden;
      }
    }
    if (to < model_.n_layers) return;
    for (const int32_t row : logit_rows_)
      for (int token = 0; token < kVocab; ++token)
        logits_.push_back(static_cast<float>(Mix(rows_[row].hidden, token) % 8192) / 1024.0f);
  }

  std::span<const float> logits(int i) const override {
    CHECK(next_layer_ == model_.n_layers);
    return std::span(logits_).subspan(static_cast<size_t>(i) * kVocab, kVocab);
  }

 private:
  struct Row {
    int first_page, position;
    uint64_t hidden;
  };
  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ std::rotl(b * 0x9e3779b97f4a7c15, 29);
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return x ^ (x >> 32);
  }
  std::byte* Slot(const Row& row, int layer, int position) const {
    const int32_t entry = pages_[row.first_page + position / layout_.page_tokens];
    CHECK(IsWhole(entry) || (PageOf(entry) >= 0 && !layout_.planes[layer].has_window));
    return pool_->plane(PageOf(entry), layer) + (position % layout_.page_tokens) * 8;
  }

  ModelDesc model_;
  KvLayout layout_;
  KvPool* pool_ = nullptr;
  std::vector<Row> rows_;
  std::vector<int32_t> pages_, logit_rows_;
  std::vector<float> logits_;
  int next_layer_ = 0;
};

}  // namespace baton
