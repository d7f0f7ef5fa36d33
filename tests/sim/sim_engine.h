// The hash engine of a simulated worker: steps and slices cost virtual time, and may write only
// pages of their own sequences.
#pragma once

#include <functional>

#include "tests/support/hash_backend.h"

namespace baton::sim {

// Longer requests have the long range; the KV of one range must not be reused by the other.
inline constexpr int kShortRangeTokens = 24;

class SimEngine : public HashBackend {
 public:
  // uses: called before each step, and before each block of a slice. ran: called after a
  // computation, with tokens times layers, and pairs of a token and a key times layers.
  SimEngine(int page_tokens, int n_layers, const std::vector<int>& windows,
            std::function<void(const StepBatch&)> uses,
            std::function<void(int n_tokens, double n_layers, double n_pairs)> ran)
      : HashBackend(page_tokens, n_layers, windows, LongropeFrom(kShortRangeTokens)),
        uses_(std::move(uses)),
        ran_(std::move(ran)) {}

  void Begin(const StepBatch& batch) override {
    uses_(batch);
    n_tokens_ = batch.n_tokens();
    n_wanted_ = static_cast<int>(batch.logit_rows.size());
    n_pairs_ = n_wanted_pairs_ = 0;
    for (const int32_t position : batch.positions) n_pairs_ += position + 1;
    for (const int32_t row : batch.logit_rows) n_wanted_pairs_ += batch.positions[row] + 1;
    HashBackend::Begin(batch);
  }
  // Projects all rows of the last layer, but finishes only those whose logits are wanted, as a
  // slice does, so that the costs of both are the engine's.
  void RunLayers(int from, int to) override {
    HashBackend::RunLayers(from, to);
    const bool has_last = to == model().n_layers;
    const int whole = to - from - (has_last ? 1 : 0);
    if (whole > 0) ran_(n_tokens_, whole, n_pairs_ * whole);
    if (!has_last) return;
    ran_(n_tokens_, kProjection, 0);
    if (n_wanted_ > 0) ran_(n_wanted_, 1 - kProjection, n_wanted_pairs_);
  }

  void BeginSlice(const StepBatch& batch) override {
    slice_.Clear();
    slice_.AddPiece(batch.tokens, batch.positions[0], batch.pages, batch.ropes[0]);
    HashBackend::BeginSlice(batch);
  }
  void ProjectSlice(int layer, int from, int to) override {
    uses_(slice_.batch());
    HashBackend::ProjectSlice(layer, from, to);
    ran_(to - from, kProjection, 0);
  }
  void AttendSlice(int layer, int from, int to, int end_key) override {
    uses_(slice_.batch());
    HashBackend::AttendSlice(layer, from, to, end_key);
    ran_(to - from, kProjection, 0);
  }
  void FinishSlice(int layer, int from, int to) override {
    uses_(slice_.batch());
    HashBackend::FinishSlice(layer, from, to);
    const double first = slice_.batch().positions[0] + from + 1.0, n = to - from;
    ran_(to - from, 1 - kProjection, n * first + n * (n - 1) / 2);
  }

 private:
  static constexpr double kProjection = 0.25;  // share of a layer's time

  const std::function<void(const StepBatch&)> uses_;
  const std::function<void(int, double, double)> ran_;
  int n_tokens_ = 0, n_wanted_ = 0;
  double n_pairs_ = 0, n_wanted_pairs_ = 0;
  StepBuilder slice_;
};

}  // namespace baton::sim
