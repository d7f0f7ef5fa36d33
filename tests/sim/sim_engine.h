// The hash engine of a simulated worker: steps cost virtual time, and a step may write only pages
// that are its sequences' own.
#pragma once

#include <functional>

#include "prefill_worker/hash_backend.h"

namespace baton::sim {

// Longer requests have the long range: what one range computes, the other must not find.
inline constexpr int kShortRangeTokens = 24;

class SimEngine : public HashBackend {
 public:
  // begin sees every batch before it runs; ran is called when layers are done, with the tokens of
  // the step and the share of it that they are.
  SimEngine(int page_tokens, int n_layers, const std::vector<int>& windows,
            std::function<void(const StepBatch&)> begin,
            std::function<void(int n_tokens, int n_layers)> ran)
      : HashBackend(page_tokens, n_layers, windows, LongropeFrom(kShortRangeTokens)),
        begin_(std::move(begin)),
        ran_(std::move(ran)) {}

  void Begin(const StepBatch& batch) override {
    begin_(batch);
    n_tokens_ = batch.n_tokens();
    HashBackend::Begin(batch);
  }
  void RunLayers(int from, int to) override {
    HashBackend::RunLayers(from, to);
    ran_(n_tokens_, to - from);
  }

 private:
  const std::function<void(const StepBatch&)> begin_;
  const std::function<void(int, int)> ran_;
  int n_tokens_ = 0;
};

}  // namespace baton::sim
