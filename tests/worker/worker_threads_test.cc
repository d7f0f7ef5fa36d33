// Engine threads, link threads and a router's thread at once, without UCX and gRPC, so that a race
// detector sees every access: two prefill workers hand over to a decode worker while requests are
// cancelled and metrics are read; at the end everything drains or is aborted.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "kvtransfer/transfer.h"
#include "tests/support/drain.h"
#include "tests/support/hash_backend.h"
#include "tests/support/mem_link.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/announce.h"
#include "worker/engine_thread.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4;

// An engine thread with its pool and transfer room; reports go to a function.
class Node {
 public:
  Node(Incarnation self, Role role, MemNetwork* network,
       std::function<void(const WorkerReport&)> on_report)
      : pool_(std::move(*KvPool::Create(backend_.kv_layout(), 80))) {
    backend_.SetPages(pool_->pages());
    WorkerCoreOptions options;
    backend_.set_limits({.max_step_tokens = 32});
    options.decode.max_batch = 6;
    options.min_mixed_tokens = 8;
    options.announce_bytes = 1;
    engine_ = std::make_unique<EngineThread>(
        options, WorkerFacts{.self = self, .role = role, .max_context = 300}, &backend_,
        pool_.get(),
        WorkerPorts{
            .transfer = [this](TransferCommand command) { transfer_->Post(std::move(command)); },
            .report = [on_report = std::move(on_report)](
                          uint64_t, const WorkerReport& report) { on_report(report); }});
    const TransferFacts facts{
        .incarnation = self, .model_fingerprint = 1, .numerics_id = "hash", .layout_id = "hash"};
    auto started = Transfer::StartOver(
        [network] { return absl::StatusOr<std::unique_ptr<Link>>(network->MakeLink()); }, {}, facts,
        ViewOf(*pool_), [this](TransferEvent event) { engine_->Post(std::move(event)); });
    REQUIRE(started.ok());
    transfer_ = std::move(*started);
    engine_->Start();
    REQUIRE(engine_->Post(RouterConnected{}));
  }
  ~Node() {
    engine_->Close();
    transfer_.reset();
    engine_->CollectPages();
    REQUIRE(pool_->held() == 0);
  }
  void Send(RouterMessage message) { REQUIRE(engine_->Post(RouterMessages{{std::move(message)}})); }
  EngineThread& engine() { return *engine_; }
  TransferPeer peer(Incarnation self) const { return {self, transfer_->address()}; }

 private:
  HashBackend backend_{kPageTokens};
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<Transfer> transfer_;
};

// The contents of the reports, for a waiting test.
class Ledger {
 public:
  void Add(const WorkerReport& report) {
    std::lock_guard lock(mutex_);
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event))
        tokens_[token->request_id][token->position] = token->token;
      if (const auto* part = std::get_if<PartEnded>(&event))
        ends_[part->request_id].push_back(part->reason);
    }
    changed_.notify_all();
  }
  void WaitParts(RequestId id, size_t n) {
    std::unique_lock lock(mutex_);
    REQUIRE(
        changed_.wait_for(lock, std::chrono::minutes(1), [&] { return ends_[id].size() >= n; }));
  }
  std::vector<int32_t> Tokens(RequestId id) {
    std::lock_guard lock(mutex_);
    std::vector<int32_t> out;
    for (const auto& [position, token] : tokens_[id]) out.push_back(token);
    return out;
  }
  std::vector<EndReason> Ends(RequestId id) {
    std::lock_guard lock(mutex_);
    return ends_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::map<int, int32_t>> tokens_;
  std::map<RequestId, std::vector<EndReason>> ends_;
};

struct Sent {
  std::vector<int32_t> prompt;
  int max_tokens = 0;
  SamplingParams sampling;
  bool cancelled = false;
};

class Cluster {
 public:
  Cluster() {
    const auto report = [this](const WorkerReport& r) { ledger_.Add(r); };
    for (const Incarnation self : {12, 11})
      nodes_.push_back(std::make_unique<Node>(self, Role::kPrefill, &network_, report));
    nodes_.push_back(std::make_unique<Node>(5, Role::kDecode, &network_, report));
  }

  RequestId Submit(std::mt19937* random) {
    const RequestId id = ++last_id_;
    Sent& sent = sent_[id];
    for (int i = 1 + static_cast<int>((*random)() % 50); i > 0; --i)
      sent.prompt.push_back(static_cast<int32_t>((*random)() % HashBackend::kVocab));
    sent.max_tokens = 2 + static_cast<int>((*random)() % 12);
    sent.sampling.seed = id;
    const int n = static_cast<int>(sent.prompt.size());
    PrefillRequest prefill;
    prefill.request_id = id;
    prefill.epoch = 1;
    Ticket ticket{.id = {.high = 1, .low = id}, .epoch = 1, .request_id = id, .sink = 5};
    ticket.promise = ticket.id;
    ticket.source = id % 2 == 0 ? 12 : 11;
    ticket.expires_us = INT64_MAX;
    ticket.kv_pages = ticket.n_pages = (n + kPageTokens - 1) / kPageTokens;
    ticket.promise_pages = (n + sent.max_tokens + kPageTokens - 1) / kPageTokens;
    SignTicket(ClusterKey{}, ticket);
    prefill.tokens = sent.prompt;
    SetWhole(&prefill, ticket, nodes_[2]->peer(5));
    prefill.sampling = sent.sampling;
    DecodeRequest decode;
    decode.request_id = id;
    decode.epoch = 1;
    decode.ticket_id = ticket.id;
    decode.tokens = sent.prompt;
    decode.max_tokens = sent.max_tokens;
    decode.sampling = sent.sampling;
    nodes_[id % 2]->Send(prefill);
    nodes_[2]->Send(decode);
    return id;
  }
  void Cancel(RequestId id) {
    sent_[id].cancelled = true;
    nodes_[id % 2]->Send(CancelRequest{id, 1});
    nodes_[2]->Send(CancelRequest{id, 1});
  }
  void CheckAll() {
    HashBackend reference(kPageTokens);
    for (const auto& [id, sent] : sent_) {
      ledger_.WaitParts(id, 2);
      if (sent.cancelled) continue;
      REQUIRE(ledger_.Ends(id) == std::vector<EndReason>(2, EndReason::kLength));
      REQUIRE(ledger_.Tokens(id) ==
              SequentialRun(&reference, sent.prompt, sent.max_tokens, sent.sampling).tokens);
    }
  }
  Node& node(int i) { return *nodes_[i]; }
  Ledger& ledger() { return ledger_; }

 private:
  Ledger ledger_;
  MemNetwork network_{MemNetwork::Mode::kThreaded, 1};
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<RequestId, Sent> sent_;
  RequestId last_id_ = 0;
};

TEST_CASE("requests and cancels from one thread, metrics from another; then all drains") {
  Cluster cluster;
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done) {
      for (int i = 0; i < 3; ++i) {
        const WorkerMetrics m = cluster.node(i).engine().metrics();
        if (m.load.pages_free > m.pages_total) std::abort();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const RequestId id = cluster.Submit(&random);
    if (i % 5 == 0) cluster.Cancel(id - random() % 3 * (id > 3));
    if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  cluster.CheckAll();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(DrainWithin(&cluster.node(i).engine(), 30));
    const WorkerMetrics m = cluster.node(i).engine().metrics();
    REQUIRE(m.pages_prefill + m.pages_decode + m.pages_promised == 0);
  }
  done = true;
  watcher.join();
}

TEST_CASE("closing in the middle of everything gives every page back") {
  for (unsigned round = 0; round < 8; ++round) {
    Cluster cluster;
    std::mt19937 random(round);
    for (int i = 0; i < 12; ++i) cluster.Submit(&random);
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
    // ~Node checks the pools.
  }
}

TEST_CASE("a worker that drains refuses what comes, by name") {
  Cluster cluster;
  std::mt19937 random(1);
  REQUIRE(DrainWithin(&cluster.node(0).engine(), 30));
  REQUIRE(cluster.node(0).engine().metrics().load.draining);
  cluster.Submit(&random);                       // 1: to node 1, which does not drain
  const RequestId id = cluster.Submit(&random);  // 2: to node 0
  cluster.ledger().WaitParts(1, 2);
  cluster.ledger().WaitParts(id, 1);
  REQUIRE(cluster.ledger().Ends(id).front() == EndReason::kFailed);
  REQUIRE(cluster.ledger().Tokens(id).empty());
}

}  // namespace
}  // namespace baton
