// A backend that computes later: every operation is queued, steps as well as zeroing and copying of
// pages, and executed in order when the test says so. Until then its KV is not there, its results
// are unset, and a fed token has no value. It dies of what a device would compute wrongly: a step
// begun before the one before was sampled, a token fed of a row that nobody sampled, a sequence
// whose state changed although the choice looks back to it. Computes by any other backend whose
// pool has all planes of a page in one place.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/step/backend.h"

namespace baton {

class LateBackend : public Backend {
 public:
  LateBackend(std::unique_ptr<Backend> inner, int depth)
      : inner_(std::move(inner)), depth_(depth) {}

  // --- for the test
  bool has_work() const { return !operations_.empty(); }
  // Executes the oldest operation; what waits for its fence is woken.
  void Execute() {
    operations_.front()();
    operations_.pop_front();
    ++done_;
    WakeDue();
  }
  // Executes nothing any more: what is under way, and what is submitted from now on, counts as
  // done.
  void Lose(std::string why) {
    lost_ = std::move(why);
    done_ += operations_.size();
    operations_.clear();
    WakeDue();
  }
  int steps_under_way() const { return n_begun_ - n_sampled_; }

  const ModelDesc& model() const override { return inner_->model(); }
  const KvLayout& kv_layout() const override { return inner_->kv_layout(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  uint64_t model_fingerprint() const override { return inner_->model_fingerprint(); }
  std::string isa() const override { return inner_->isa(); }
  StepLimits limits() const override { return inner_->limits(); }
  WeightMemory weight_memory() const override { return inner_->weight_memory(); }

  int depth() const override { return depth_; }
  Fence submitted() const override { return {done_ + operations_.size()}; }
  bool reached(Fence fence) override { return fence.at <= done_; }
  std::optional<std::string> lost() const override { return lost_; }
  void WakeAt(Fence fence, const std::function<void()>& wake) override {
    if (reached(fence)) return wake();
    wakes_.push_back({fence, wake});
  }

  absl::StatusOr<std::unique_ptr<KvArena>> NewArena(int64_t bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<KvArena> mapped, KvArena::Map(bytes));
    return std::make_unique<Arena>(std::move(mapped), this);
  }
  void SetPages(const KvPages& pages) override {
    BATON_CHECK(!pages.layout->planes_apart());
    inner_->SetPages(pages);
  }

  void Begin(const StepBatch& batch) override {
    BATON_CHECK(is_sampled_ && steps_under_way() < depth_);
    is_sampled_ = false;
    ++n_begun_;
    Submit([this, owned = Owned(batch)]() mutable {
      for (int32_t& token : owned.tokens) {
        if (!IsFed(token)) continue;
        const auto logits = static_cast<size_t>(LogitsOfFed(token));
        BATON_CHECK(logits < sampled_.size() && sampled_[logits] >= 0);
        token = sampled_[logits];
      }
      inner_->Begin(owned.batch());
    });
  }
  void RunLayers(int from, int to) override {
    Submit([this, from, to] { inner_->RunLayers(from, to); });
  }
  void Sample(std::span<const RowSampling> rows, StepOutput* out) override {
    BATON_CHECK(!is_sampled_);
    is_sampled_ = true;
    Submit([this, now = States(rows), out] {
      now.Check();
      inner_->Sample(now.rows, out);
      sampled_.clear();
      for (size_t i = 0; i < now.rows.size(); ++i)
        sampled_.push_back(now.rows[i].sampling == nullptr ? -1 : out->sampled[i].token);
      ++n_sampled_;
    });
  }
  void Score(const ScoredRows& rows, std::span<PromptLogprob> out) override {
    BATON_CHECK(is_sampled_);
    const std::vector<int32_t> tokens(rows.tokens.begin(), rows.tokens.end());
    Submit([this, rows, tokens, out] {
      ScoredRows owned = rows;
      owned.tokens = tokens;
      inner_->Score(owned, out);
    });
  }

  void BeginSlice(const StepBatch& batch) override {
    Submit([this, owned = Owned(batch)] { inner_->BeginSlice(owned.batch()); });
  }
  void ProjectSlice(int layer, int from, int to) override {
    Submit([=, this] { inner_->ProjectSlice(layer, from, to); });
  }
  void AttendSlice(int layer, int from, int to, int end_key) override {
    Submit([=, this] { inner_->AttendSlice(layer, from, to, end_key); });
  }
  void FinishSlice(int layer, int from, int to) override {
    Submit([=, this] { inner_->FinishSlice(layer, from, to); });
  }
  void SampleSlice(const RowSampling& row, StepOutput* out) override {
    Submit([this, now = States(std::span(&row, 1)), out] {
      now.Check();
      inner_->SampleSlice(now.rows[0], out);
    });
  }

  std::span<const float> logits(int i) const override { return inner_->logits(i); }
  std::span<const float> ScoredLogits(int from, int to) override {
    return inner_->ScoredLogits(from, to);
  }
  std::span<const float> slice_logits() const override { return inner_->slice_logits(); }

 protected:
  // Each operation is one point of the timeline.
  virtual void Submit(std::function<void()> operation) {
    if (lost_)
      ++done_;
    else
      operations_.push_back(std::move(operation));
  }
  Backend& inner() { return *inner_; }

 private:
  struct Wake {
    Fence at;
    std::function<void()> call;
  };
  void WakeDue() {
    std::vector<Wake> due;
    const auto is_due = [this](const Wake& wake) { return wake.at.at <= done_; };
    std::copy_if(wakes_.begin(), wakes_.end(), std::back_inserter(due), is_due);
    std::erase_if(wakes_, is_due);
    for (const Wake& wake : due) wake.call();
  }

  class Arena : public KvArena {
   public:
    Arena(std::unique_ptr<KvArena> mapped, LateBackend* backend)
        : KvArena(std::move(mapped)), backend_(backend) {}
    void Zero(std::byte* at, int64_t n) override {
      backend_->Submit([at, n] { std::memset(at, 0, static_cast<size_t>(n)); });
    }
    void Copy(std::byte* to, const std::byte* from, int64_t n) override {
      backend_->Submit([to, from, n] { std::memcpy(to, from, static_cast<size_t>(n)); });
    }

   private:
    LateBackend* const backend_;
  };

  // A batch that outlives the call.
  struct Owned {
    std::vector<int32_t> tokens, positions, piece_begin, page_begin, pages, logit_rows, scored_rows;
    std::vector<RopeRange> ropes;
    explicit Owned(const StepBatch& b)
        : tokens(b.tokens.begin(), b.tokens.end()),
          positions(b.positions.begin(), b.positions.end()),
          piece_begin(b.piece_begin.begin(), b.piece_begin.end()),
          page_begin(b.page_begin.begin(), b.page_begin.end()),
          pages(b.pages.begin(), b.pages.end()),
          logit_rows(b.logit_rows.begin(), b.logit_rows.end()),
          scored_rows(b.scored_rows.begin(), b.scored_rows.end()),
          ropes(b.ropes.begin(), b.ropes.end()) {}
    StepBatch batch() const {
      return {tokens, positions, piece_begin, page_begin, pages, logit_rows, ropes, scored_rows};
    }
  };

  // The rows to sample, and how far their sequences are. A device reads the sequences when the call
  // is made.
  struct States {
    std::vector<RowSampling> rows;
    std::vector<int32_t> n_generated;  // -1: the choice does not look back
    explicit States(std::span<const RowSampling> r) : rows(r.begin(), r.end()) {
      for (const RowSampling& row : rows)
        n_generated.push_back(row.sampling != nullptr && row.sampling->LooksBack()
                                  ? row.sampling->n_generated()
                                  : -1);
    }
    void Check() const {
      for (size_t i = 0; i < rows.size(); ++i)
        BATON_CHECK(n_generated[i] < 0 || n_generated[i] == rows[i].sampling->n_generated());
    }
  };

  const std::unique_ptr<Backend> inner_;
  const int depth_;
  std::deque<std::function<void()>> operations_;
  uint64_t done_ = 0;
  std::vector<Wake> wakes_;
  std::optional<std::string> lost_;
  std::vector<int32_t> sampled_;  // tokens of the step sampled last; -1: nobody sampled the row
  bool is_sampled_ = true;        // the step submitted last
  int n_begun_ = 0, n_sampled_ = 0;
};

}  // namespace baton
