// A worker of two routers: what is said of a request goes to its router, the load and the cached
// pages to both, and the loss of one ends that one's requests alone.
#include <catch2/catch.hpp>

#include "tests/worker/worker_fixture.h"

namespace baton {
namespace {

constexpr RouterId kFirst = 1, kSecond = 2;

struct Heard {
  std::map<RequestId, std::vector<int32_t>> tokens;
  std::vector<PartEnded> ends;
  int n_loads = 0, n_restarts = 0;
  std::set<PageName> pages;
};

struct Rig {
  Rig() : backend(kPageTokens, kLayers), pool(std::move(*KvPool::Create(backend.kv_layout(), 40))) {
    backend.SetPages(pool->pages());
    backend.set_limits({.max_step_tokens = 64});
    WorkerCoreOptions options;
    options.decode.max_batch = 8;
    core = std::make_unique<WorkerCore>(
        options, WorkerFacts{.self = kSelf, .max_context = 100}, &backend, pool.get(),
        WorkerPorts{.clock = [this] { return now += absl::Microseconds(10); },
                    .transfer = [this](TransferCommand c) { commands.push_back(std::move(c)); },
                    .report = [this](uint64_t stream, const WorkerReport& r) { Take(stream, r); }});
    for (const RouterId router : {kFirst, kSecond})
      core->Handle(RouterEvent(RouterConnected{.router = router, .stream = router}));
    core->Turn();
  }
  ~Rig() {
    core->Close();
    std::vector<int32_t> lent;
    for (TransferCommand& command : commands)
      if (auto* lend = std::get_if<LendPages>(&command))
        lent.insert(lent.end(), lend->pages.begin(), lend->pages.end());
    core->Handle(TransferEvent(PagesReturned{lent}));
    core->Abandon();
  }
  void Take(uint64_t stream, const WorkerReport& report) {
    Heard& by = heard[static_cast<RouterId>(stream)];  // its name is the router's id here
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event))
        by.tokens[token->request_id].push_back(token->token);
      if (const auto* ended = std::get_if<PartEnded>(&event)) by.ends.push_back(*ended);
      by.n_loads += std::holds_alternative<WorkerLoad>(event);
      if (const auto* told = std::get_if<CachedPages>(&event)) {
        by.n_restarts += told->restart;
        if (told->restart) by.pages.clear();
        for (const PageName& name : told->lost) by.pages.erase(name);
        by.pages.insert(told->entered.begin(), told->entered.end());
      }
    }
  }
  // A prompt whose tokens follow on this worker.
  void Say(RouterId router, uint64_t serial, const std::vector<int32_t>& prompt, int max_tokens) {
    const RequestId id = MakeRequestId(router, serial);
    const TicketId ticket{.high = router, .low = serial};
    PrefillRequest prefill;
    prefill.request_id = id;
    prefill.epoch = 1;
    prefill.tokens = prompt;
    prefill.sampling.temperature = 0;
    const auto kv_pages = static_cast<int32_t>((prompt.size() + kPageTokens - 1) / kPageTokens);
    SetWhole(&prefill,
             {.id = ticket,
              .promise = ticket,
              .kv_pages = kv_pages,
              .promise_pages = kv_pages + 8,
              .n_pages = kv_pages},
             {.incarnation = kSelf});
    DecodeRequest decode{.request_id = id,
                         .epoch = 1,
                         .ticket_id = ticket,
                         .tokens = prompt,
                         .max_tokens = max_tokens,
                         .is_local = true,
                         .sampling = {.temperature = 0}};
    core->Handle(RouterEvent(RouterMessages{{decode, prefill}, router}));
  }
  void Turns() {
    while (core->Turn()) {
    }
  }

  absl::Time now = absl::UnixEpoch();
  HashBackend backend;
  std::unique_ptr<KvPool> pool;
  std::vector<TransferCommand> commands;
  std::map<RouterId, Heard> heard;
  std::unique_ptr<WorkerCore> core;
};

}  // namespace

TEST_CASE("each router hears of its own requests, of the load and of all cached pages") {
  Rig rig;
  const std::vector<int32_t> prompt = Tokens(9, 1), other = Tokens(13, 2);
  rig.Say(kFirst, 7, prompt, 3);
  rig.Say(kSecond, 7, other, 4);
  rig.Turns();
  CHECK(rig.heard[kFirst].tokens == std::map<RequestId, std::vector<int32_t>>{
                                        {MakeRequestId(kFirst, 7), Expected(prompt, 3).tokens}});
  CHECK(rig.heard[kSecond].tokens == std::map<RequestId, std::vector<int32_t>>{
                                         {MakeRequestId(kSecond, 7), Expected(other, 4).tokens}});
  for (const RouterId router : {kFirst, kSecond}) {
    CHECK(rig.heard[router].ends.size() == 2);
    CHECK(rig.heard[router].n_loads > 0);
    const std::vector<PageName> names = rig.core->index()->Names();
    CHECK(rig.heard[router].pages == std::set<PageName>(names.begin(), names.end()));
  }
  CHECK(rig.core->metrics().routers == 2);
}

TEST_CASE("a router that is lost ends its own requests, and frees their pages at once") {
  Rig rig;
  const std::vector<int32_t> prompt = Tokens(9, 1), other = Tokens(13, 2);
  rig.Say(kFirst, 1, prompt, 30);
  rig.Say(kSecond, 1, other, 12);
  for (int turn = 0; turn < 4; ++turn) rig.core->Turn();
  REQUIRE(rig.core->metrics().load.decode_rows == 2);
  const int held = rig.core->metrics().pages_decode;
  rig.core->Handle(RouterEvent(RouterDisconnected{absl::UnavailableError("gone"), kFirst}));
  rig.core->Turn();
  CHECK(rig.core->metrics().load.decode_rows == 1);
  CHECK(rig.core->metrics().pages_decode < held);
  CHECK(rig.core->metrics().routers == 1);
  CHECK(rig.core->metrics().routers_lost == 1);
  CHECK(rig.core->metrics().parts_orphaned == 1);  // the prompt had ended
  const auto is_meant = [](const TransferCommand& command) {
    const auto* cancel = std::get_if<CancelPromises>(&command);
    return cancel != nullptr && cancel->router == kFirst;
  };
  CHECK(std::count_if(rig.commands.begin(), rig.commands.end(), is_meant) == 1);
  const size_t n_ends = rig.heard[kFirst].ends.size();
  rig.Turns();
  CHECK(rig.heard[kSecond].tokens[MakeRequestId(kSecond, 1)] == Expected(other, 12).tokens);
  CHECK(rig.heard[kFirst].ends.size() == n_ends);  // nobody is there to be told
  CHECK(rig.core->IsQuiet());

  // A router that comes back, as another life, is told everything.
  rig.core->Handle(RouterEvent(RouterConnected{.router = 5, .stream = 5}));
  rig.Turns();
  CHECK(rig.heard[5].n_restarts == 1);
  CHECK(rig.heard[5].pages == rig.heard[kSecond].pages);
  rig.Say(5, 1, prompt, 3);
  rig.Turns();
  CHECK(rig.heard[5].tokens[MakeRequestId(5, 1)] == Expected(prompt, 3).tokens);
}

TEST_CASE("ids of requests name their router, and never repeat between routers") {
  CHECK(RouterOf(MakeRequestId(kFirst, 1)) == kFirst);
  const RouterId largest = (1u << 24) - 1;
  CHECK(RouterOf(MakeRequestId(largest, (uint64_t{1} << 40) - 1)) == largest);
  CHECK(MakeRequestId(kFirst, 1) != MakeRequestId(kSecond, 1));
  for (const uint64_t random : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 24}) {
    CHECK(MakeRouterId(random) > 0);
    CHECK(MakeRouterId(random) <= largest);
  }
}

}  // namespace baton
