// A relay's slice among steps, turn by turn; the test plays the router and the transfer room.
#include "worker/worker_core.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "proto/control_codec.h"
#include "tests/support/cached_pages.h"
#include "tests/support/hash_backend.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/announce.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4, kLayers = 3, kPages = 40;
constexpr Incarnation kSelf = 5;
constexpr TicketId kInflowTicket{.high = 1, .low = 1}, kSequenceTicket{.high = 2, .low = 2};

std::vector<int32_t> Tokens(int n, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((seed * 31 + i * 7) % HashBackend::kVocab);
  return tokens;
}

SequentialTokens Expected(const std::vector<int32_t>& prompt, int max_tokens,
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
  std::span<const float> ScoredLogits(int from, int to) override {
    if (before_scores) before_scores();
    return HashBackend::ScoredLogits(from, to);
  }
  std::vector<int> block_rows;
  std::function<void()> before_scores;
};

struct WorkerFixture {
  explicit WorkerFixture(const RopeDesc& rope = {})
      : backend(kPageTokens, kLayers, {}, rope),
        pool(std::move(*KvPool::Create(backend.kv_layout(), kPages))) {
    backend.SetPool(pool.get());
    WorkerCoreOptions options;
    backend.set_limits({.max_step_tokens = 64});
    options.decode.max_batch = 4;
    options.announce_bytes = 1;
    options.mixed_prefill_tokens = 2;
    core = std::make_unique<WorkerCore>(
        options, WorkerFacts{.self = kSelf, .max_context = 100}, &backend, pool.get(),
        WorkerPorts{.clock = [this] { return now += absl::Microseconds(10); },
                    .transfer = [this](TransferCommand c) { commands.push_back(std::move(c)); },
                    .report = [this](WorkerReport r) { Take(r); }});
    core->Handle(RouterEvent(RouterConnected{}));
  }
  ~WorkerFixture() {
    core->Close();
    for (TransferCommand& command : commands)
      if (auto* lend = std::get_if<LendPages>(&command))
        lent.insert(lent.end(), lend->pages.begin(), lend->pages.end());
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
  void Compute(RequestId id, const std::vector<int32_t>& computed) {
    PrefillRequest request;
    request.request_id = id;
    request.epoch = 1;
    request.tokens = computed;
    request.sampling.temperature = 0;
    SetWhole(&request, {}, {});
    Say(request);
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
    other.SetPool(other_pool.get());
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
  // Admits a request with 6 tokens from another worker and 4 tokens to make.
  void Sequence() {
    Say(DecodeRequest{.request_id = 8,
                      .epoch = 1,
                      .ticket_id = kSequenceTicket,
                      .tokens = sequence_prompt,
                      .max_tokens = 4,
                      .sampling = {.temperature = 0}});
    core->Handle(TransferEvent(ReceivePoolChanged{.free_pages = 0, .waiting = 1}));
    core->Turn();
    for (TransferCommand& command : commands)
      if (auto* lend = std::get_if<LendPages>(&command)) lent = std::exchange(lend->pages, {});
    REQUIRE(lent.size() >= 3);
    HandoffArrived arrived;
    arrived.ticket_id = kSequenceTicket;
    arrived.epoch = 1;
    arrived.request_id = 8;
    arrived.pages.assign(lent.end() - 3, lent.end());
    lent.resize(lent.size() - 3);
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
  WorkerLoad load;  // the last reported load
  uint64_t n_told = 0, n_restarts = 0;
  std::set<PageName> known;  // to the router: cached pages
};

TEST_CASE("a request has one range of longrope in prefill and decode") {
  const RopeDesc rope = LongropeFrom(23);
  for (const int max_tokens : {3, 4}) {  // the max of the short range, and one more
    WorkerFixture rig(rope);
    rig.Say(DecodeRequest{.request_id = 9,
                          .epoch = 1,
                          .ticket_id = kSequenceTicket,
                          .tokens = rig.prompt,
                          .max_tokens = max_tokens,
                          .sampling = {.temperature = 0}});
    PrefillRequest request;
    request.request_id = 9;
    request.epoch = 1;
    request.tokens = rig.prompt;
    request.sampling.temperature = 0;
    request.max_total_tokens = 20 + max_tokens;
    SetWhole(&request,
             {.id = kSequenceTicket,
              .promise = kSequenceTicket,
              .kv_pages = 5,
              .promise_pages = 6,
              .n_pages = 5},
             {.incarnation = kSelf});
    rig.Say(request);
    rig.Turns();
    std::vector<int32_t> tokens;
    for (const TokenOut& token : rig.tokens[9]) tokens.push_back(token.token);
    CHECK(tokens == Expected(rig.prompt, max_tokens, rope).tokens);
    CHECK(tokens !=
          Expected(rig.prompt, max_tokens, LongropeFrom(max_tokens == 3 ? 22 : 24)).tokens);
  }
}

TEST_CASE(
    "a worker tells what prefill costs it, by steps without decode rows and by slices, and what "
    "waits") {
  WorkerFixture rig;
  rig.Tail(false);
  CHECK_FALSE(rig.load.prefill_cost.is_known());
  CHECK(rig.load.prefill_queued_tokens == 8);
  CHECK(rig.load.prefill_queued_pairs == 8 * 12 + 8 * 8 / 2);
  rig.Flow(1, 3);
  rig.Turns();
  rig.now += absl::Seconds(2);  // the load is reported again
  rig.Turns();
  // The times of the slice's six blocks, without other work between them.
  const PrefillCost cost = rig.load.prefill_cost;
  CHECK(cost.n_layers * (cost.token * 8 + cost.pair * 128) == Approx(6 * 10e-6));
  CHECK(rig.load.prefill_queued_pairs == 0);
  rig.Sequence();
  rig.Turns();
  rig.now += absl::Seconds(2);
  rig.Turns();
  CHECK(rig.core->metrics().steps > 1);
  CHECK(rig.load.prefill_cost == cost);
}

TEST_CASE("a load tells the speeds of links, which alone are no reason for one") {
  WorkerFixture rig;
  const auto links_after = [&rig](absl::Duration duration) {
    rig.now += duration;
    rig.Turns();
    return rig.load.links;
  };
  REQUIRE(links_after(absl::Seconds(1)).empty());
  rig.core->Handle(TransferEvent(LinksMeasured{{{3, 5e6, 70}, {4, 2e6, 0}}}));
  CHECK(links_after(absl::Milliseconds(500)).empty());
  CHECK(links_after(absl::Seconds(1)) == std::vector<LinkRate>{{3, 5e6, 70}, {4, 2e6, 0}});
  rig.core->Handle(
      TransferEvent(LinksMeasured{std::vector<LinkRate>(ControlLimits::kLinks + 1, {3, 1e6, 0})}));
  CHECK(links_after(absl::Seconds(1)).size() == ControlLimits::kLinks);
}

TEST_CASE("a worker tells what it has cached: all at first and when asked, else what changes") {
  WorkerFixture rig;
  rig.Turns();
  CHECK(rig.n_restarts == 1);
  CHECK(rig.known.empty());
  rig.Compute(20, rig.prompt);
  const std::vector<PageName> names = PageNames(ClusterKey{}, rig.prompt, kPageTokens);
  CHECK(rig.known == std::set<PageName>(names.begin(), names.end()));
  CHECK(rig.KnowsAll());
  const uint64_t n_told = rig.n_told;
  rig.Compute(21, rig.prompt);  // nothing new
  CHECK(rig.n_told == n_told);
  rig.Say(TellPages{});
  rig.Turns();
  CHECK(rig.n_restarts == 2);
  CHECK(rig.known.size() == names.size());
  // More prompts than the pool has room for: pages are lost.
  for (RequestId id = 30; id < 50; ++id) {
    rig.Compute(id, Tokens(20, static_cast<int>(id)));
    CHECK(rig.KnowsAll());
  }
  CHECK(rig.n_restarts == 2);
  CHECK(std::count_if(names.begin(), names.end(),
                      [&rig](const PageName& name) { return rig.known.contains(name); }) < 5);
  // A router that comes later knows nothing of it.
  rig.core->Handle(RouterEvent(RouterDisconnected{}));
  rig.Turns();
  rig.core->Handle(RouterEvent(RouterConnected{}));
  rig.known.clear();
  rig.Turns();
  CHECK(rig.n_restarts == 3);
  CHECK_FALSE(rig.known.empty());
  CHECK(rig.KnowsAll());
}

TEST_CASE("a worker's names of pages depend on RoPE's range, by the bound that it announces") {
  for (const int max_short_tokens : {19, 20}) {
    WorkerFixture rig(LongropeFrom(max_short_tokens));
    rig.Compute(20, rig.prompt);
    const WorkerAnnounce announce =
        AnnounceOf({.self = kSelf, .max_context = 100}, {}, rig.backend, *rig.pool);
    CHECK(announce.short_range_tokens == max_short_tokens);
    const std::vector<PageName> names =
        PageNames(ClusterKey{}, rig.prompt, kPageTokens, 0, 20 > announce.short_range_tokens);
    CHECK(rig.known == std::set<PageName>(names.begin(), names.end()));
  }
  WorkerFixture rig;
  CHECK(AnnounceOf({.self = kSelf, .max_context = 100}, {}, rig.backend, *rig.pool)
            .short_range_tokens == 0);
}

TEST_CASE("a slice goes on plane by plane") {
  WorkerFixture rig;
  rig.Tail();
  REQUIRE(rig.core->metrics().slice_blocks == 3);
  REQUIRE(rig.core->metrics().slice_wait_seconds == 0);
  rig.Flow(1, 2);
  REQUIRE(rig.core->Turn());
  REQUIRE(rig.core->Turn());
  REQUIRE_FALSE(rig.core->Turn());
  rig.Flow(2, 3);
  rig.Turns();
  REQUIRE(rig.backend.block_rows.back() == 1);  // of the last layer
  REQUIRE(rig.tokens[7].size() == 1);
  REQUIRE(rig.tokens[7][0].token == Expected(rig.prompt, 1).tokens[0]);
  const WorkerMetrics metrics = rig.core->metrics();
  REQUIRE(metrics.steps == 0);
  REQUIRE(metrics.prefill_tokens == 8);
  REQUIRE(metrics.slice_blocks == 6);
  REQUIRE(metrics.slice_seconds > 0);
  REQUIRE(metrics.slice_wait_seconds > 0);
}

TEST_CASE("rows do not wait for a slice, and it goes on beside them") {
  WorkerFixture rig;
  rig.Tail(false);
  rig.Sequence();
  const std::vector<int32_t> expected = Expected(rig.sequence_prompt, 4).tokens;
  rig.backend.block_rows.clear();
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(rig.core->Turn());
    REQUIRE(rig.tokens[8].size() == i + 1);  // a token in every turn
    REQUIRE(rig.tokens[8][i].token == expected[i + 1]);
    REQUIRE(rig.backend.block_rows.size() <= i + 1);
  }
  // With rows in the batch, a block costs at most as much as two prompt tokens in a step: six rows
  // of one of three layers.
  for (const int rows : rig.backend.block_rows) REQUIRE(rows <= 6);
  REQUIRE(rig.tokens[7].empty());
  rig.Flow(1, 3);
  rig.Turns();
  REQUIRE(rig.tokens[7].at(0).token == Expected(rig.prompt, 1).tokens[0]);
}

TEST_CASE("scoring a prompt is part of its step, and the step's rows do not wait for it") {
  WorkerFixture rig;
  rig.Sequence();
  PrefillRequest scored;
  scored.request_id = 9;
  scored.epoch = 1;
  scored.tokens = rig.prompt;
  scored.sampling.temperature = 0;
  scored.prompt_logprobs = 0;
  SetWhole(&scored, {}, {});
  rig.Say(scored);
  size_t n_told = 0;
  rig.backend.before_scores = [&] {
    rig.now += absl::Seconds(1);
    n_told = rig.tokens[8].size();
  };
  const WorkerMetrics before = rig.core->metrics();
  for (size_t i = 1; i <= 3; ++i) {  // half of the two tokens beside rows, which may be one
    REQUIRE(rig.core->Turn());
    CHECK(n_told == i);
    const WorkerMetrics metrics = rig.core->metrics();
    CHECK(metrics.prefill_tokens == before.prefill_tokens + i);
    CHECK(metrics.step_seconds - before.step_seconds > static_cast<double>(i));
    CHECK(metrics.prefill_seconds - before.prefill_seconds > static_cast<double>(i));
  }
  rig.Turns();
  CHECK(rig.tokens[9].at(0).token == Expected(rig.prompt, 1).tokens[0]);
  rig.now += absl::Seconds(2);
  rig.Turns();
  CHECK(rig.load.prefill_cost.token < 1e-3);  // what prompts cost that are not scored
}

TEST_CASE("shorter prompts pass a slice, and a cancel reaches it, within one block") {
  WorkerFixture rig;
  rig.Tail(false);
  REQUIRE(rig.core->Turn());
  const size_t blocks = rig.backend.block_rows.size();
  PrefillRequest next;
  next.request_id = 9;
  next.epoch = 1;
  next.tokens = rig.sequence_prompt;
  next.sampling.temperature = 0;
  SetWhole(&next, {}, {});
  rig.Say(next);
  REQUIRE(rig.core->Turn());
  REQUIRE(rig.tokens[9].at(0).token == Expected(rig.sequence_prompt, 1).tokens[0]);
  REQUIRE(rig.backend.block_rows.size() == blocks + 1);
  rig.Say(CancelRequest{.request_id = 7, .epoch = 1});
  rig.Turns();
  REQUIRE(rig.backend.block_rows.size() == blocks + 1);
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::CancelledError("cancelled")}));
  rig.core->Turn();
  REQUIRE(rig.ends.back().reason == EndReason::kCancelled);
}

TEST_CASE("a slice is dropped with its prompt, and the worker goes on") {
  WorkerFixture rig;
  rig.Tail();
  const bool cancelled = GENERATE(true, false);
  if (cancelled) rig.Say(CancelRequest{.request_id = 7, .epoch = 1});
  rig.core->Turn();
  REQUIRE(rig.ends.empty());  // the pages may still be written
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::UnavailableError("head lost")}));
  PrefillRequest next;
  next.request_id = 9;
  next.epoch = 1;
  next.tokens = rig.prompt;
  next.sampling.temperature = 0;
  SetWhole(&next, {}, {});
  rig.Say(next);
  rig.Turns();
  REQUIRE(rig.ends.size() == 2);
  REQUIRE(rig.ends[0].reason == (cancelled ? EndReason::kCancelled : EndReason::kFailed));
  REQUIRE(rig.tokens[9].at(0).token == Expected(rig.prompt, 1).tokens[0]);
  // The slice of a broken attempt is kept for a while.
  REQUIRE((rig.pool->held() == 0) == cancelled);
  rig.now += 2 * PrefillOptions().kept_slice_time;
  rig.Turns();
  REQUIRE(rig.pool->held() == 0);
}

TEST_CASE("a worker that closes with a slice keeps nothing") {
  WorkerFixture rig;
  rig.Tail();
  rig.core->Close();
  rig.Turns();
  REQUIRE_FALSE(rig.core->IsQuiet());
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::CancelledError("cancelled")}));
  REQUIRE(rig.core->IsQuiet());
}

}  // namespace
}  // namespace baton
