// A WorkerCore, turn by turn; the test plays the router and the transfer room.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "tests/support/hash_backend.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/worker_core.h"

namespace baton {

inline constexpr int kPageTokens = 4, kLayers = 3, kPages = 40;
inline constexpr Incarnation kSelf = 5;
inline constexpr TicketId kInflowTicket{.high = 1, .low = 1}, kSequenceTicket{.high = 2, .low = 2};

inline std::vector<int32_t> Tokens(int n, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((seed * 31 + i * 7) % HashBackend::kVocab);
  return tokens;
}

inline SequentialTokens Expected(const std::vector<int32_t>& prompt, int max_tokens,
                                 const RopeDesc& rope = {}) {
  HashBackend reference(kPageTokens, kLayers, {}, rope);
  return SequentialRun(&reference, prompt, max_tokens, {.temperature = 0});
}

// Records the blocks of slices that it computes.
struct NotingBackend : HashBackend {
  using HashBackend::HashBackend;
  void ProjectSlice(int layer, int from, int to) override {
    HashBackend::ProjectSlice(layer, from, to);
    block_rows.push_back(to - from);
  }
  void FinishSlice(int layer, int from, int to) override {
    HashBackend::FinishSlice(layer, from, to);
    block_rows.push_back(to - from);
  }
  void Begin(const StepBatch& batch) override {
    HashBackend::Begin(batch);
    step_tokens = batch.n_tokens();
  }
  void RunLayers(int from, int to) override {
    HashBackend::RunLayers(from, to);
    if (ran) ran(step_tokens, to - from);
  }
  std::span<const float> ScoredLogits(int from, int to) override {
    if (before_scores) before_scores();
    return HashBackend::ScoredLogits(from, to);
  }
  std::vector<int> block_rows;
  std::function<void()> before_scores;
  std::function<void(int tokens, int layers)> ran;
  int step_tokens = 0;
};

struct WorkerFixture {
  explicit WorkerFixture(const RopeDesc& rope = {}, double itl_stretch = 1)
      : backend(kPageTokens, kLayers, {}, rope),
        pool(std::move(*KvPool::Create(backend.kv_layout(), kPages))) {
    backend.SetPages(pool->pages());
    WorkerCoreOptions options;
    backend.set_limits({.max_step_tokens = 64});
    options.decode.max_batch = 4;
    options.announce_bytes = 1;
    options.itl_stretch = itl_stretch;
    options.min_mixed_tokens = 2;
    core = std::make_unique<WorkerCore>(
        options, WorkerFacts{.self = kSelf, .max_context = 100}, &backend, pool.get(),
        WorkerPorts{.clock = [this] { return now += absl::Microseconds(10); },
                    .transfer = [this](TransferCommand c) { commands.push_back(std::move(c)); },
                    .report = [this](uint64_t, const WorkerReport& r) { Take(r); },
                    .expect = [this](absl::Duration step) { expected.push_back(step); }});
    core->Handle(RouterEvent(RouterConnected{}));
  }
  ~WorkerFixture() {
    core->Close();
    for (TransferCommand& command : commands)
      if (auto* lend = std::get_if<LendPages>(&command))
        lent.insert(lent.end(), lend->pages.begin(), lend->pages.end());
      else if (auto* held = std::get_if<LendHeld>(&command))
        lent.insert(lent.end(), held->pages.begin(), held->pages.end());
    core->Handle(TransferEvent(PagesReturned{lent}));
    core->Abandon();
  }

  void Take(const WorkerReport& report) {
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event))
        tokens[token->request_id].push_back(*token);
      if (const auto* ended = std::get_if<PartEnded>(&event)) ends.push_back(*ended);
      if (const auto* told = std::get_if<WorkerLoad>(&event)) load = *told;
      if (const auto* told = std::get_if<CachedPages>(&event)) Take(*told);
    }
  }
  void Take(const CachedPages& told) {
    REQUIRE(told.number == ++n_told);
    if (told.restart) known.clear();
    n_restarts += told.restart;
    for (const PageName& name : told.lost) REQUIRE(known.erase(name) == 1);
    for (const PageName& name : told.entered) REQUIRE(known.insert(name).second);
    REQUIRE(known.size() <= kPages);
  }
  // Asks for a prompt whose KV goes nowhere.
  void Ask(RequestId id, const std::vector<int32_t>& tokens_of) {
    PrefillRequest request{.request_id = id, .epoch = 1, .tokens = tokens_of};
    request.sampling.temperature = 0;
    SetWhole(&request, {}, {});
    Say(request);
  }
  void Compute(RequestId id, const std::vector<int32_t>& computed) {
    Ask(id, computed);
    Turns();
  }
  bool KnowsAll() const {
    const std::vector<PageName> names = core->index()->Names();
    return std::equal(names.begin(), names.end(), known.begin(), known.end());
  }
  void Say(RouterMessage message) {
    RouterMessages messages;
    messages.messages.push_back(std::move(message));
    core->Handle(RouterEvent(std::move(messages)));
  }
  void Turns() {
    while (core->Turn()) {
    }
  }
  // Copies KV of a prompt computed by another worker, planes [from, to), into pages of this worker.
  void Land(const std::vector<int32_t>& computed, const std::vector<int32_t>& pages, int from,
            int to) {
    HashBackend other(kPageTokens);
    auto other_pool = std::move(*KvPool::Create(other.kv_layout(), kPages));
    other.SetPages(other_pool->pages());
    std::vector<int32_t> there;
    REQUIRE(other_pool->Take(static_cast<int>(pages.size()), &there));
    StepBuilder builder;
    builder.AddPiece(computed, 0, there);
    other.Begin(builder.batch());
    other.RunLayers(0, kLayers);
    for (int plane = from; plane < to; ++plane) {
      const int64_t bytes = pool->layout().planes[static_cast<size_t>(plane)].bytes;
      for (size_t i = 0; i < pages.size(); ++i)
        std::memcpy(pool->plane(pages[i], plane), other_pool->plane(there[i], plane),
                    static_cast<size_t>(bytes));
    }
    other_pool->Give(there);
  }
  // Admits a tail's prompt of 20 tokens, the first 12 by inflow, of which one plane has arrived.
  // has_run: the slice has used that plane, else it has not begun.
  void Tail(bool has_run = true) {
    PrefillRequest request;
    request.request_id = 7;
    request.epoch = 1;
    request.tokens = prompt;
    request.sampling.temperature = 0;
    request.slices = {{.begin = 12, .end = 20, .inflow = kInflowTicket}};
    Say(request);
    Turns();
    for (const TransferCommand& command : commands)
      if (const auto* await = std::get_if<AwaitInflow>(&command)) inflow_pages = await->pages;
    REQUIRE(inflow_pages.size() == 3);
    Flow(0, 1);
    if (!has_run) return;
    for (int block = 0; block < 3; ++block) REQUIRE(core->Turn());
    REQUIRE_FALSE(core->Turn());
    REQUIRE(backend.block_rows == std::vector<int>{8, 8, 8});
  }
  void Flow(int from, int to) {
    Land({prompt.begin(), prompt.begin() + 12}, inflow_pages, from, to);
    core->Handle(
        TransferEvent(InflowArrived{.ticket_id = kInflowTicket, .epoch = 1, .n_planes = to}));
  }
  // Returns pages that the transfer room has been lent, for KV that arrives.
  std::vector<int32_t> TakeLent(int n) {
    core->Handle(TransferEvent(ReceivePoolChanged{.free_pages = 0, .waiting = 1}));
    core->Turn();
    for (TransferCommand& command : commands) {
      if (auto* lend = std::get_if<LendPages>(&command)) {
        const std::vector<int32_t> pages = std::exchange(lend->pages, {});
        lent.insert(lent.end(), pages.begin(), pages.end());
      }
    }
    REQUIRE(std::ssize(lent) >= n);
    std::vector<int32_t> taken(lent.end() - n, lent.end());
    lent.resize(lent.size() - taken.size());
    return taken;
  }
  // Admits a request with 6 tokens from another worker and max_tokens to make.
  void Sequence(int max_tokens = 4) {
    Say(DecodeRequest{.request_id = 8,
                      .epoch = 1,
                      .ticket_id = kSequenceTicket,
                      .tokens = sequence_prompt,
                      .max_tokens = max_tokens,
                      .sampling = {.temperature = 0}});
    HandoffArrived arrived;
    arrived.ticket_id = kSequenceTicket;
    arrived.epoch = 1;
    arrived.request_id = 8;
    arrived.pages = TakeLent(3);
    arrived.record = {.first_token = Expected(sequence_prompt, 1).tokens[0], .n_tokens = 6};
    Land(sequence_prompt, {arrived.pages[0], arrived.pages[1]}, 0, kLayers);
    core->Handle(TransferEvent(std::move(arrived)));
    core->Handle(
        TransferEvent(ReceivePoolChanged{.free_pages = static_cast<int32_t>(lent.size())}));
  }

  const std::vector<int32_t> prompt = Tokens(20, 3), sequence_prompt = Tokens(6, 4);
  absl::Time now = absl::UnixEpoch();
  NotingBackend backend;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<WorkerCore> core;
  std::vector<TransferCommand> commands;
  std::vector<int32_t> inflow_pages, lent;
  std::map<RequestId, std::vector<TokenOut>> tokens;
  std::vector<PartEnded> ends;
  WorkerLoad load;                       // the last reported load
  std::vector<absl::Duration> expected;  // what each step, and each block of a slice, should take
  uint64_t n_told = 0, n_restarts = 0;
  std::set<PageName> known;  // to the router: cached pages
};

}  // namespace baton
