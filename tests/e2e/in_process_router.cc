#include "tests/e2e/in_process_router.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {

InProcessRouter::InProcessRouter(const RouterOptions& options, const ClusterKey& key)
    : router_(std::make_unique<Router>(options, key, RandomId)) {
  ControlServerOptions server;
  server.key = key;
  server.router = router_->id();
  server.wake = [this] {
    std::lock_guard lock(mutex_);
    woken_ = true;
    front_wakes_.notify_one();
  };
  auto started = ControlServer::Start(server);
  INFO(started.status().ToString());
  REQUIRE(started.ok());
  server_ = std::move(*started);
  front_ = std::thread([this] { RunFront(); });
}

InProcessRouter::~InProcessRouter() { Stop(); }

std::string InProcessRouter::address() const {
  return absl::StrFormat("127.0.0.1:%d", server_->port());
}

void InProcessRouter::AwaitWorkers(int prefill_and_decode, int decode) {
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  std::unique_lock lock(mutex_);
  // Announced workers appear in the view; every report of a worker notifies.
  while (true) {
    const ClusterView view = router_->View();
    if (view.decode_workers >= decode &&
        view.prefill_workers + view.decode_workers >= prefill_and_decode)
      return;
    REQUIRE(absl::Now() < give_up);
    outcome_changed_.wait_for(lock, std::chrono::seconds(1));
  }
}

void InProcessRouter::Stop() {
  if (!front_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    front_wakes_.notify_one();
  }
  front_.join();
  server_->Shutdown();
  server_.reset();
}

void InProcessRouter::RunFront() {
  std::vector<ControlEvent> events;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const absl::Duration left =
        std::min(router_->NextDeadline() - absl::Now(), absl::Duration(absl::Seconds(60)));
    front_wakes_.wait_for(lock, absl::ToChronoNanoseconds(std::max(left, absl::ZeroDuration())),
                          [this] { return woken_ || stopping_; });
    woken_ = false;
    lock.unlock();
    events.clear();
    server_->TakeEvents(&events);
    lock.lock();
    const absl::Time now = absl::Now();
    for (const ControlEvent& event : events) {
      if (const auto* reported = std::get_if<WorkerReported>(&event)) {
        const absl::Status status = router_->OnReport(reported->worker, reported->report, now);
        if (!status.ok()) server_->Close(reported->worker, status);
      } else if (const auto* lost = std::get_if<WorkerLost>(&event)) {
        router_->OnWorkerLost(lost->worker, now);
      }
    }
    router_->OnTime(now);
    Apply();
    outcome_changed_.notify_all();
  }
}

void InProcessRouter::Apply() {
  for (RouterEffect& effect : router_->TakeEffects()) {
    if (auto* send = std::get_if<SendToWorker>(&effect)) {
      server_->Send(send->worker, {std::move(send->message)});
    } else if (auto* token = std::get_if<EmitToken>(&effect)) {
      Outcome& outcome = outcomes_[token->request_id];
      outcome.tokens.push_back(token->token);
      outcome.digests.push_back(token->digest);
      outcome.logprobs.push_back(token->logprob);
      outcome.beside.push_back(std::move(token->logprobs));
      outcome.prompt_logprobs.insert(outcome.prompt_logprobs.end(), token->prompt_logprobs.begin(),
                                     token->prompt_logprobs.end());
    } else if (auto* end = std::get_if<EmitEnd>(&effect)) {
      Outcome& outcome = outcomes_[end->request_id];
      outcome.ended = true;
      outcome.end = std::move(*end);
    } else if (const auto* close = std::get_if<CloseWorker>(&effect)) {
      server_->Close(close->worker, close->reason);
    }
  }
}

RequestId InProcessRouter::Submit(GenerateRequest request) {
  std::lock_guard lock(mutex_);
  const auto id = router_->Submit(std::move(request), absl::Now());
  INFO(id.status().ToString());
  REQUIRE(id.ok());
  outcomes_[*id];
  woken_ = true;  // the front thread sends the new effects
  front_wakes_.notify_one();
  return *id;
}

void InProcessRouter::Cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  router_->Cancel(id, absl::Now());
  woken_ = true;
  front_wakes_.notify_one();
}

bool InProcessRouter::WaitTokens(RequestId id, size_t n_tokens) {
  std::unique_lock lock(mutex_);
  return outcome_changed_.wait_for(lock, std::chrono::minutes(1), [&] {
    return outcomes_[id].tokens.size() >= n_tokens || outcomes_[id].ended;
  });
}

Outcome InProcessRouter::WaitEnd(RequestId id) {
  std::unique_lock lock(mutex_);
  REQUIRE(outcome_changed_.wait_for(lock, std::chrono::minutes(2),
                                    [&] { return outcomes_[id].ended; }));
  return outcomes_[id];
}

ClusterView InProcessRouter::View() {
  std::lock_guard lock(mutex_);
  return router_->View();
}

}  // namespace baton
