// The engine of a simulated worker that computes later, as a device does: the hash engine behind a
// queue of operations, of which each takes virtual time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/support/late_backend.h"

namespace baton::sim {

class LateEngine : public LateBackend {
 public:
  // uses: called before each step, and before each part of a slice, is submitted. submitted: called
  // after each operation.
  LateEngine(std::unique_ptr<Backend> inner, int depth, std::function<void(const StepBatch&)> uses,
             std::function<void()> submitted)
      : LateBackend(std::move(inner), depth),
        uses_(std::move(uses)),
        submitted_(std::move(submitted)) {}

  void Begin(const StepBatch& batch) override {
    uses_(batch);
    LateBackend::Begin(batch);
  }
  void BeginSlice(const StepBatch& batch) override {
    slice_.Clear();
    slice_.AddPiece(batch.tokens, batch.positions[0], batch.pages, batch.ropes[0]);
    LateBackend::BeginSlice(batch);
  }
  void ProjectSlice(int layer, int from, int to) override {
    uses_(slice_.batch());
    LateBackend::ProjectSlice(layer, from, to);
  }
  void AttendSlice(int layer, int from, int to, int end_key) override {
    uses_(slice_.batch());
    LateBackend::AttendSlice(layer, from, to, end_key);
  }
  void FinishSlice(int layer, int from, int to) override {
    uses_(slice_.batch());
    LateBackend::FinishSlice(layer, from, to);
  }

 private:
  void Submit(std::function<void()> operation) override {
    LateBackend::Submit(std::move(operation));
    submitted_();
  }

  const std::function<void(const StepBatch&)> uses_;
  const std::function<void()> submitted_;
  StepBuilder slice_;
};

}  // namespace baton::sim
