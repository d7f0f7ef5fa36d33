#include <catch2/catch.hpp>

#include "tests/e2e/in_process_cluster.h"

#include "absl/strings/str_format.h"
#include "engine/load_backend.h"
#include "kvtransfer/links/ucx_link.h"
#include "tests/support/tapped_link.h"
#include "tests/support/withheld_acks.h"

namespace baton {
namespace {

absl::StatusOr<std::unique_ptr<Link>> MakeUcxLinkWithoutAcks() {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeUcxLink("127.0.0.1"));
  auto tapped = std::make_unique<TappedLink>(std::move(link));
  WithholdAcks(tapped.get());
  return tapped;
}

}  // namespace

InProcessCluster::InProcessCluster(const InProcessOptions& options) {
  const ClusterKey key{1, 2, 3};
  RouterOptions router;
  router.local = options.local;
  router.relay.min_tokens = options.relay_min_tokens;
  router.relay.max_ranks = router.relay.min_ranks = options.relay_max_ranks;
  router_ = std::make_unique<Router>(router, key, RandomId);
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

  const int n =
      options.colocated ? options.decode_workers : options.prefill_workers + options.decode_workers;
  for (int i = 0; i < n; ++i) {
    const bool is_prefill = !options.colocated && i < options.prefill_workers;
    WorkerOptions worker;
    worker.engine = options.engine;
    worker.core.decode.max_batch = options.max_batch;
    worker.core.prefill.chunk_tokens = options.chunk_tokens;
    WorkerStart start;
    start.role = options.colocated ? Role::kBoth : is_prefill ? Role::kPrefill : Role::kDecode;
    start.name = absl::StrFormat("%s%d", is_prefill ? "prefill" : "decode", i);
    start.routers = {absl::StrFormat("127.0.0.1:%d", server_->port())};
    start.key = key;
    start.compile_grammar = options.compile_grammar;
    if (options.withhold_acks) start.make_link = MakeUcxLinkWithoutAcks;
    start.kv_pages =
        options.kv_pages > 0 ? options.kv_pages : 8 * 4096 / options.engine.page_tokens;
    auto backend = LoadBackend(worker.engine);
    INFO(backend.status().ToString());
    REQUIRE(backend.ok());
    auto made = Worker::Start(worker, start, *std::move(backend));
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    workers_.push_back(std::move(*made));
  }
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  std::unique_lock lock(mutex_);
  // Announced workers appear in the view; every report of a worker notifies.
  while (true) {
    const ClusterView view = router_->View();
    const int seen =
        options.colocated ? view.decode_workers : view.decode_workers + view.prefill_workers;
    if (seen >= n) break;
    REQUIRE(absl::Now() < give_up);
    outcome_changed_.wait_for(lock, std::chrono::seconds(1));
  }
}

InProcessCluster::~InProcessCluster() { Stop(); }

void InProcessCluster::Stop() {
  workers_.clear();
  StopRouter();
}

void InProcessCluster::StopRouter() {
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

void InProcessCluster::RunFront() {
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

void InProcessCluster::Apply() {
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

RequestId InProcessCluster::Submit(GenerateRequest request) {
  std::lock_guard lock(mutex_);
  const auto id = router_->Submit(std::move(request), absl::Now());
  INFO(id.status().ToString());
  REQUIRE(id.ok());
  outcomes_[*id];
  woken_ = true;  // the front thread sends the new effects
  front_wakes_.notify_one();
  return *id;
}

void InProcessCluster::Cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  router_->Cancel(id, absl::Now());
  woken_ = true;
  front_wakes_.notify_one();
}

bool InProcessCluster::WaitTokens(RequestId id, size_t n_tokens) {
  std::unique_lock lock(mutex_);
  return outcome_changed_.wait_for(lock, std::chrono::minutes(1), [&] {
    return outcomes_[id].tokens.size() >= n_tokens || outcomes_[id].ended;
  });
}

Outcome InProcessCluster::WaitEnd(RequestId id) {
  std::unique_lock lock(mutex_);
  REQUIRE(outcome_changed_.wait_for(lock, std::chrono::minutes(2),
                                    [&] { return outcomes_[id].ended; }));
  return outcomes_[id];
}

std::vector<Outcome> InProcessCluster::RunAll(const std::vector<GenerateRequest>& requests) {
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(Submit(request));
  std::vector<Outcome> outcomes;
  for (const RequestId id : ids) outcomes.push_back(WaitEnd(id));
  return outcomes;
}

ClusterView InProcessCluster::View() {
  std::lock_guard lock(mutex_);
  return router_->View();
}

}  // namespace baton
