// Feeds one sequence to a backend step by step and reads logits and KV back.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "engine/load_backend.h"
#include "engine/numerics/bf16.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"

namespace baton {

inline std::unique_ptr<Backend> LoadOrDie(const EngineOptions& options, const EngineLab& lab = {}) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = LoadLabBackend(options, lab);
  if (!backend.ok()) std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

class SequenceRunner {
 public:
  SequenceRunner(Backend& backend, int max_tokens) : backend_(backend) {
    absl::StatusOr<std::unique_ptr<KvPool>> pool =
        KvPool::Create(backend.kv_layout(), backend.kv_layout().PagesFor(max_tokens),
                       [&](int64_t bytes) { return backend.NewArena(bytes); });
    REQUIRE(pool.ok());
    pool_ = *std::move(pool);
    REQUIRE(pool_->Take(pool_->total(), &pages_));
    backend_.SetPages(pool_->pages());
  }
  ~SequenceRunner() { pool_->Give(pages_); }
  SequenceRunner(const SequenceRunner&) = delete;
  SequenceRunner& operator=(const SequenceRunner&) = delete;

  // Starts the next sequence, of at most `max_total_tokens` tokens.
  void Restart(int max_total_tokens = 0) {
    position_ = 0;
    rope_ = backend_.model().rope.RangeOf(max_total_tokens);
  }

  // Computes the next tokens as one piece, all scored but those in `wanted` (ascending), which have
  // logits. Returns the logits of all rows in their order.
  std::vector<float> FeedScored(std::span<const int32_t> tokens, std::span<const int32_t> wanted) {
    step_.Clear();
    step_.AddPiece(tokens, position_, pages_, rope_);
    const int n = static_cast<int>(tokens.size());
    int from = 0;
    for (const int32_t row : wanted) {
      step_.WantScores(from, row);
      step_.WantLogits(row);
      from = row + 1;
    }
    step_.WantScores(from, n);
    backend_.Begin(step_.batch());
    backend_.RunLayers(0, backend_.model().n_layers);
    EndStep(wanted.size());
    position_ += n;
    std::vector<float> logits;
    int scored = 0, with_logits = 0;
    for (int row = 0; row < n; ++row) {
      const bool is_wanted = std::binary_search(wanted.begin(), wanted.end(), row);
      const std::span<const float> values =
          is_wanted ? backend_.logits(with_logits++) : backend_.ScoredLogits(scored, scored + 1);
      scored += is_wanted ? 0 : 1;
      logits.insert(logits.end(), values.begin(), values.end());
    }
    // Several rows at once, once more, and the rows with logits are still there.
    const std::span<const float> many =
        scored == 0 ? std::span<const float>()
                    : backend_.ScoredLogits(0, std::min(scored, Backend::kScoredAtOnce));
    const size_t vocab = static_cast<size_t>(backend_.model().vocab);
    for (int row = 0, i = 0; row < n && i < static_cast<int>(many.size() / vocab); ++row) {
      if (std::binary_search(wanted.begin(), wanted.end(), row)) continue;
      CHECK(std::memcmp(&many[static_cast<size_t>(i++) * vocab],
                        &logits[static_cast<size_t>(row) * vocab], vocab * sizeof(float)) == 0);
    }
    for (size_t i = 0; i < wanted.size(); ++i)
      CHECK(std::memcmp(backend_.logits(static_cast<int>(i)).data(),
                        &logits[static_cast<size_t>(wanted[i]) * vocab],
                        vocab * sizeof(float)) == 0);
    return logits;
  }

  // Computes the next tokens as one piece. Returns logits of the piece's rows in `wanted`
  // (ascending), one after the other. Layers run in cuts of `layers_per_run` (0 = all at once).
  std::vector<float> Feed(std::span<const int32_t> tokens, std::span<const int32_t> wanted,
                          int layers_per_run = 0) {
    step_.Clear();
    step_.AddPiece(tokens, position_, pages_, rope_);
    for (const int32_t row : wanted) step_.WantLogits(row);
    backend_.Begin(step_.batch());
    const int n_layers = backend_.model().n_layers;
    const int cut = layers_per_run > 0 ? layers_per_run : n_layers;
    for (int layer = 0; layer < n_layers; layer += cut) {
      backend_.RunLayers(layer, std::min(layer + cut, n_layers));
    }
    EndStep(wanted.size());
    position_ += static_cast<int>(tokens.size());
    std::vector<float> logits;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::span<const float> row = backend_.logits(static_cast<int>(i));
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
  }
  std::vector<float> FeedLast(std::span<const int32_t> tokens) {
    const int32_t last = static_cast<int32_t>(tokens.size()) - 1;
    return Feed(tokens, std::span(&last, 1));
  }

  // Returns the pool's data for one position: (key_dim) values of K after rope, or (value_dim) of
  // V.
  std::vector<float> Key(int layer, int head, int position) const {
    const KvLayout& layout = pool_->layout();
    const int width = layout.shape(layer).key_dim_padded();
    return Read(layer, layout.KOffset(layer, head), position, layout.shape(layer).key_dim,
                [&](int i, int slot) {
                  if (layout.type == KvType::kFp32) return slot * width + i;
                  return slot / 16 * 16 * width + i / 2 * 32 + slot % 16 * 2 + i % 2;
                });
  }
  std::vector<float> Value(int layer, int head, int position) const {
    const KvLayout& layout = pool_->layout();
    const int width = layout.shape(layer).value_dim;
    return Read(layer, layout.VOffset(layer, head), position, width, [&](int i, int slot) {
      if (layout.type == KvType::kFp32) return slot * width + i;
      return slot / 2 * 2 * width + i * 2 + slot % 2;
    });
  }
  KvPool& pool() { return *pool_; }

 private:
  // Ends the step, whose tokens nobody reads, and waits for it.
  void EndStep(size_t n_logits) {
    backend_.Sample(std::vector<RowSampling>(n_logits), &output_);
    while (!backend_.reached(backend_.submitted())) std::this_thread::yield();
  }
  template <typename Index>
  std::vector<float> Read(int layer, int64_t offset, int position, int width,
                          const Index& index) const {
    const KvLayout& layout = pool_->layout();
    const std::byte* block = pool_->plane(pages_[position / layout.page_tokens], layer) + offset;
    std::vector<float> values;
    for (int i = 0; i < width; ++i) {
      const int at = index(i, position % layout.page_tokens);
      values.push_back(layout.type == KvType::kFp32
                           ? reinterpret_cast<const float*>(block)[at]
                           : Bf16ToFloat(reinterpret_cast<const bf16*>(block)[at]));
    }
    return values;
  }

  Backend& backend_;
  std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> pages_;
  StepBuilder step_;
  StepOutput output_;
  int position_ = 0;
  RopeRange rope_ = RopeRange::kShort;
};

}  // namespace baton
