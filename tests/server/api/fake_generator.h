// A fake cluster without workers for tests of the HTTP front: answers by script and counts its
// requests. Front thread, like the real one.
#pragma once

#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "server/api/generator.h"
#include "server/http/event_loop.h"

namespace baton {

class FakeGenerator : public Generator {
 public:
  explicit FakeGenerator(EventLoop* loop) : loop_(loop) {}
  void SetListener(GeneratorListener* listener) { listener_ = listener; }

  absl::StatusOr<RequestId> Submit(GenerateRequest request) override {
    if (!refusal.ok() && n_submitted >= n_taken) return refusal;
    ++n_submitted;
    const RequestId id = next_id_++;
    auto& run = runs_[id];
    run.max_tokens = request.max_tokens;
    run.token = request.prompt.back();
    if (request.prompt_logprobs >= 0) {
      const auto n_top = static_cast<size_t>(request.prompt_logprobs);
      run.of_prompt.assign(request.prompt.size() - 1,
                           {.logprob = -2, .rank = 3, .top = {n_top, {run.token, -1.5f}}});
    }
    submitted.push_back(std::move(request));
    if (!hold) loop_->Post([this, id] { Step(id); });
    return id;
  }
  void Cancel(RequestId id) override {
    if (runs_.count(id) == 0) return;
    ++n_cancelled;
    loop_->Post([this, id] { End(id, EndReason::kCancelled, absl::OkStatus()); });
  }
  void Drain() override { view.draining = true; }
  ClusterView View() const override {
    ClusterView now = view;
    now.running = static_cast<int>(runs_.size());
    return now;
  }
  std::vector<WorkerView> Workers() const override { return workers; }
  std::optional<RequestView> Progress(RequestId id) const override {
    if (!runs_.contains(id)) return std::nullopt;
    return RequestView{.n_tokens = runs_.at(id).n, .timeline = timeline};
  }

  // Loop's thread. Emits one token for every running request (always the prompt's last).
  void StepAll() {
    std::vector<RequestId> ids;
    for (const auto& [id, run] : runs_) ids.push_back(id);
    for (const RequestId id : ids) StepOnce(id);
  }
  // Emits one token of the n-th running request.
  void StepNth(size_t n) { StepOnce(std::next(runs_.begin(), static_cast<ptrdiff_t>(n))->first); }
  void FailNth(size_t n, const absl::Status& status) {
    End(std::next(runs_.begin(), static_cast<ptrdiff_t>(n))->first, EndReason::kFailed, status);
  }
  void FailAll(const absl::Status& status) {
    std::vector<RequestId> ids;
    for (const auto& [id, run] : runs_) ids.push_back(id);
    for (const RequestId id : ids) End(id, EndReason::kFailed, status);
  }

  // Set before requests arrive; any thread may read.
  std::atomic<bool> hold = false;     // emits tokens only in StepAll
  std::atomic<bool> endless = false;  // emits tokens until cancelled, beyond max_tokens
  absl::Status refusal;
  int n_taken = 0;  // requests before the first one that is refused
  ClusterView view{.prefill_workers = 1, .decode_workers = 1, .max_context = 4096};
  std::vector<WorkerView> workers;
  Timeline timeline;  // of all requests
  std::atomic<int> n_submitted = 0, n_cancelled = 0;
  std::vector<GenerateRequest> submitted;  // loop's thread

 private:
  struct Run {
    int max_tokens = 0, n = 0;
    int32_t token = 0;
    std::vector<PromptLogprob> of_prompt{};
  };
  void Step(RequestId id) {
    StepOnce(id);
    if (runs_.count(id) > 0) loop_->Post([this, id] { Step(id); });
  }
  void StepOnce(RequestId id) {
    const auto found = runs_.find(id);
    if (found == runs_.end()) return;
    EmitToken token;
    token.request_id = id;
    token.index = found->second.n++;
    token.token = found->second.token;
    token.logprob = -1;
    token.prompt_logprobs = std::exchange(found->second.of_prompt, {});
    const bool last = !endless && found->second.n == found->second.max_tokens;
    listener_->OnToken(token);
    if (last) End(id, EndReason::kLength, absl::OkStatus());
  }
  void End(RequestId id, EndReason reason, const absl::Status& status) {
    if (runs_.erase(id) == 0) return;
    EmitEnd end;
    end.request_id = id;
    end.reason = reason;
    end.status = status;
    end.timeline = timeline;
    listener_->OnEnd(end);
  }

  EventLoop* loop_;
  GeneratorListener* listener_ = nullptr;
  RequestId next_id_ = 1;
  std::map<RequestId, Run> runs_;
};

}  // namespace baton
