// Runs requests through any backend as a worker does, in an order that a seed draws: chunks of
// prompts beside rows, tokens fed where they are not known yet, layers in runs, the first request
// as a slice, prompts scored, pages taken, trimmed and given back. What comes out must not depend
// on it.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"

namespace baton {

struct DrivenRequest {
  std::vector<int32_t> prompt;
  int max_tokens = 8;
  SamplingParams sampling{};
};

struct DrivenResult {
  std::vector<SampledToken> sampled;
  std::map<int, PromptLogprob> scored;  // by position
};

// Waits for the fence as an engine thread does, asleep.
inline void SleepUntil(Backend& backend, Fence fence) {
  std::mutex mutex;
  std::condition_variable woken;
  bool is_woken = false;
  backend.WakeAt(fence, [&] {
    const std::lock_guard lock(mutex);
    is_woken = true;
    woken.notify_one();
  });
  std::unique_lock lock(mutex);
  woken.wait(lock, [&] { return is_woken; });
}

class StepDriver {
 public:
  // wait: makes the backend go on until the fence is reached, or not as far; called while nothing
  // else can be done. n_pages: enough for some of the requests at once.
  StepDriver(Backend& backend, int n_pages, uint64_t seed, std::function<void(Fence)> wait)
      : backend_(backend), random_(seed), wait_(std::move(wait)) {
    absl::StatusOr<std::unique_ptr<KvPool>> pool = KvPool::Create(
        backend.kv_layout(), n_pages, [&](int64_t bytes) { return backend.NewArena(bytes); });
    REQUIRE(pool.ok());
    pool_ = *std::move(pool);
    backend.SetPages(pool_->pages());
  }

  // Asked before results are taken; true: the run ends, with what is there.
  void StopIf(std::function<bool()> is_lost) { is_lost_ = std::move(is_lost); }

  std::vector<DrivenResult> Run(std::span<const DrivenRequest> requests) {
    sequences_.clear();
    for (const DrivenRequest& request : requests) {
      Sequence& s = sequences_.emplace_back();
      s.request = &request;
      s.tokens = request.prompt;
      s.total = static_cast<int>(request.prompt.size()) + request.max_tokens;
      s.sampling = std::make_shared<SequenceSampling>(request.sampling, std::span<const int32_t>{},
                                                      request.prompt);
      s.is_slice = &s == &sequences_.front();
    }
    const auto is_done = [](const Sequence& s) { return s.is_done; };
    while (!std::all_of(sequences_.begin(), sequences_.end(), is_done)) {
      for (Sequence& s : sequences_) Start(s);
      RunSlice();
      if (static_cast<int>(steps_.size()) < backend_.depth() && Submit()) continue;
      if (!steps_.empty()) {
        while (!backend_.reached(steps_.front()->done)) wait_(steps_.front()->done);
        if (IsLost()) break;
        Complete();
      } else if (slice_ != nullptr && slice_->is_sampled) {
        while (!backend_.reached(slice_->done)) wait_(slice_->done);
        if (IsLost()) break;
        CompleteSlice();
      }
    }
    std::vector<DrivenResult> results;
    for (Sequence& s : sequences_) {
      results.push_back(std::move(s.result));
      if (s.is_started && !s.is_done) pool_->Give(s.pages);
    }
    steps_.clear();
    slice_ = nullptr;
    return results;
  }
  int64_t n_fed() const { return n_fed_; }        // tokens
  int64_t n_behind() const { return n_behind_; }  // steps submitted while one was under way

 private:
  struct Sequence {
    const DrivenRequest* request = nullptr;
    std::vector<int32_t> tokens;  // known ones
    int total = 0;
    int submitted = 0;  // positions
    std::vector<int32_t> pages;
    std::shared_ptr<SequenceSampling> sampling;
    bool is_slice = false, is_started = false, is_done = false;
    int64_t newest_step = -1;  // that sampled its newest token
    int newest_row = -1;       // of that step's logits
    DrivenResult result;
  };
  struct Step {
    Fence done;
    StepOutput out;
    std::vector<Sequence*> rows;                    // of its logits
    std::vector<std::pair<Sequence*, int>> scored;  // and the position of each
    std::vector<PromptLogprob> scores;
  };
  struct Slice {
    Sequence* of = nullptr;
    int layer = 0;
    bool is_sampled = false;
    Fence done;
    StepOutput out;
  };

  bool IsLost() const { return is_lost_ != nullptr && is_lost_(); }
  int Dice(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void Start(Sequence& s) {
    if (s.is_started || !pool_->Take(pool_->layout().PagesFor(s.total), &s.pages)) return;
    s.is_started = true;
    if (!s.is_slice) return;
    slice_ = std::make_unique<Slice>();
    slice_->of = &s;
    builder_.Clear();
    const int n = static_cast<int>(s.tokens.size());
    builder_.AddPiece(s.tokens, 0, s.pages, backend_.model().rope.RangeOf(s.total));
    builder_.WantLogits(n - 1);
    backend_.BeginSlice(builder_.batch());
    s.submitted = n;
  }

  // A layer of the slice, in parts.
  void RunSlice() {
    if (slice_ == nullptr || slice_->is_sampled || Dice(2) == 0) return;
    const int n = static_cast<int>(slice_->of->tokens.size());
    const int layer = slice_->layer++;
    ForParts(n, [&](int from, int to) { backend_.ProjectSlice(layer, from, to); });
    ForParts(n, [&](int from, int to) { backend_.FinishSlice(layer, from, to); });
    if (layer + 1 < backend_.model().n_layers) return;
    backend_.SampleSlice({slice_->of->sampling, n, true}, &slice_->out);
    slice_->done = backend_.submitted();
    slice_->is_sampled = true;
  }
  template <typename Part>
  void ForParts(int n, const Part& part) {
    for (int from = 0, to = 0; from < n; from = to) {
      to = std::min(n, from + 1 + Dice(backend_.limits().max_step_tokens));
      part(from, to);
    }
  }
  void CompleteSlice() {
    Accept(*slice_->of, std::move(slice_->out.sampled.at(0)));
    slice_ = nullptr;
  }

  // False: nothing can be submitted now.
  bool Submit() {
    builder_.Clear();
    auto step = std::make_unique<Step>();
    std::vector<int32_t> scored_tokens;
    const bool only_rows = Dice(2) == 0;  // steps that are graphs
    for (Sequence& s : sequences_) {
      if (!s.is_started || s.is_done || s.submitted == s.total - 1) continue;
      if (s.is_slice && slice_ != nullptr) continue;
      const RopeRange rope = backend_.model().rope.RangeOf(s.total);
      const int room = backend_.limits().max_step_tokens - builder_.n_tokens();
      const int prompt_left = static_cast<int>(s.request->prompt.size()) - s.submitted;
      if (room == 0 || Dice(5) == 0 || (prompt_left > 0 && only_rows)) continue;
      if (prompt_left > 0) {
        const int n = std::min({room, prompt_left, 1 + Dice(24)});
        const int row = builder_.AddPiece(std::span(s.tokens).subspan(s.submitted, n), s.submitted,
                                          s.pages, rope);
        const bool is_last = n == prompt_left;
        if (!is_last && Dice(3) == 0) {
          builder_.WantScores(row, row + n);
          for (int i = 0; i < n; ++i) {
            step->scored.emplace_back(&s, s.submitted + i);
            scored_tokens.push_back(s.tokens[static_cast<size_t>(s.submitted + i + 1)]);
          }
        }
        s.submitted += n;
        if (is_last) Want(s, row + n - 1, *step);
        continue;
      }
      int32_t token = 0;
      if (s.submitted < static_cast<int>(s.tokens.size())) {
        token = s.tokens[static_cast<size_t>(s.submitted)];
      } else if (s.newest_step == n_steps_ - 1 && !s.sampling->LooksBack()) {
        token = FedToken(s.newest_row);
        ++n_fed_;
      } else {
        continue;  // waits until the token is known
      }
      const int row = builder_.AddPiece(std::span(&token, 1), s.submitted++, s.pages, rope);
      Want(s, row, *step);
    }
    if (builder_.n_tokens() == 0) return false;
    Run(std::move(step), scored_tokens);
    for (Sequence& s : sequences_) Trim(s);
    return true;
  }

  // Gives back planes that have fallen out of the windows, though the step may still be under way.
  void Trim(Sequence& s) {
    if (!s.is_started || s.is_done || (s.is_slice && slice_ != nullptr)) return;
    const int passed = pool_->layout().PagesPassed(s.submitted);
    if (passed > 0) pool_->Trim(std::span(s.pages).first(static_cast<size_t>(passed)));
  }

  void Want(Sequence& s, int row, Step& step) {
    s.newest_row = builder_.WantLogits(row);
    s.newest_step = n_steps_;
    step.rows.push_back(&s);
  }

  void Run(std::unique_ptr<Step> step, const std::vector<int32_t>& scored_tokens) {
    if (!steps_.empty() && !backend_.reached(steps_.back()->done)) ++n_behind_;
    backend_.Begin(builder_.batch());
    const int n_layers = backend_.model().n_layers;
    const int cut = Dice(2) == 0 ? n_layers : 1 + Dice(n_layers);
    for (int from = 0; from < n_layers; from += cut)
      backend_.RunLayers(from, std::min(from + cut, n_layers));
    std::vector<RowSampling> rows;
    for (const Sequence* s : step->rows) rows.push_back({s->sampling, s->submitted, true});
    backend_.Sample(rows, &step->out);
    const auto n = static_cast<int>(step->scored.size());
    step->scores.resize(step->scored.size());
    for (int from = 0; from < n; from += Backend::kScoredAtOnce) {
      const int to = std::min(n, from + Backend::kScoredAtOnce);
      const ScoredRows scored{from, std::span(scored_tokens).subspan(from, to - from), 3,
                              static_cast<size_t>(backend_.model().vocab)};
      backend_.Score(scored, std::span(step->scores).subspan(from, to - from));
    }
    step->done = backend_.submitted();
    steps_.push_back(std::move(step));
    ++n_steps_;
  }

  void Complete() {
    const std::unique_ptr<Step> step = std::move(steps_.front());
    steps_.pop_front();
    REQUIRE(step->out.sampled.size() == step->rows.size());
    for (size_t i = 0; i < step->scored.size(); ++i)
      step->scored[i].first->result.scored[step->scored[i].second] = step->scores[i];
    for (size_t i = 0; i < step->rows.size(); ++i)
      Accept(*step->rows[i], std::move(step->out.sampled[i]));
  }

  void Accept(Sequence& s, SampledToken sampled) {
    s.tokens.push_back(sampled.token);
    s.sampling->Push(sampled.token);
    s.result.sampled.push_back(std::move(sampled));
    if (static_cast<int>(s.tokens.size()) < s.total) return;
    s.is_done = true;
    pool_->Give(s.pages);
  }

  Backend& backend_;
  std::mt19937_64 random_;
  const std::function<void(Fence)> wait_;
  std::function<bool()> is_lost_;
  std::unique_ptr<KvPool> pool_;
  std::deque<Sequence> sequences_;
  std::deque<std::unique_ptr<Step>> steps_;
  std::unique_ptr<Slice> slice_;
  StepBuilder builder_;
  int64_t n_steps_ = 0, n_fed_ = 0, n_behind_ = 0;
};

}  // namespace baton
