// Two schedulers as the ranks of a relay, the transfer between them played by hand: plane by plane,
// late, never, or failing at every step.
#include <algorithm>
#include <cstring>
#include <set>

#include "prefill_worker/scheduler_bench.h"

namespace baton {
namespace {

constexpr int kLayers = 3;
constexpr Incarnation kTail = 3;

// Ids of tickets: of request r the decode handoff is r, the inflow 1000 + r.
constexpr RequestId kInflow = 1000;

PrefillRequest HeadRequest(RequestId id, int n_tokens, int slice) {
  PrefillRequest request = Bench::Request(id, n_tokens, kTail);
  request.tokens.resize(static_cast<size_t>(slice));
  request.ticket.id = Bench::Id(kInflow + id);
  request.ticket.kv_pages = slice / kPageTokens;
  request.ticket.promise_pages = 0;
  request.is_head = true;
  return request;
}
PrefillRequest TailRequest(RequestId id, int n_tokens, int slice, Incarnation sink) {
  PrefillRequest request = Bench::Request(id, n_tokens, sink);
  request.inflow = {.ticket_id = Bench::Id(kInflow + id), .tokens = slice};
  return request;
}

SequentialTokens Expected(RequestId id, int n_tokens) {
  HashBackend reference(kPageTokens);
  const PrefillRequest request = Bench::Request(id, n_tokens);
  return SequentialRun(&reference, request.tokens, 1, request.sampling);
}

struct Relay {
  Relay(RequestId request, int n_tokens, int slice, Incarnation sink, int chunk = 0)
      : id(request), n(n_tokens), c(slice), head(200, chunk), tail(200, chunk, 4, &counts) {
    head.Admit(HeadRequest(id, n, c));
    tail.Admit(TailRequest(id, n, c, sink));
    tail.Step(1);  // sends OPEN, if there is somebody to send it to
    if (sink != 0 && sink != kSelf) tail.Promise(id);
    tail.Collect();
  }

  ~Relay() {
    head.scheduler->Abandon();
    tail.scheduler->Abandon();
    for (const HandoffArrived& kept : tail.kept) tail.pool->Give(kept.pages);
  }

  // The head computes all of its slice.
  void RunHead(int budget = 1000) {
    head.Step(budget);
    head.Promise(kInflow + id);
    while (head.Step(budget) > 0) {
    }
  }
  // Copies planes [arrived, planes) of the slice and tells the tail.
  void Flow(int planes) {
    REQUIRE(tail.awaits.size() == 1);
    std::set<std::pair<int, int>> cells;
    for (const SendCells& sent : head.sent)
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i) {
          if (plane < arrived || plane >= planes) continue;
          const auto page = static_cast<size_t>(sent.first_page) + i;
          REQUIRE(cells.emplace(plane, page).second);
          const int64_t bytes = tail.pool->layout().planes[static_cast<size_t>(plane)].bytes;
          std::memcpy(tail.pool->plane(tail.awaits[0].pages.at(page), plane),
                      head.pool->plane(sent.pages[i], plane), static_cast<size_t>(bytes));
        }
    REQUIRE(static_cast<int>(cells.size()) == (planes - arrived) * (c / kPageTokens));
    arrived = planes;
    tail.scheduler->Arrived({.ticket_id = Bench::Id(kInflow + id), .n_planes = planes}, tail.now);
    tail.Collect();
  }
  void FailInflow() {
    tail.scheduler->Failed(
        {.ticket_id = Bench::Id(kInflow + id), .status = absl::UnavailableError("head lost")});
    tail.Collect();
  }
  // Begins a step at the tail: its tokens, 0 if there is none to begin.
  int Begin(int budget = 1000, bool may_wait = true) {
    tail.builder.Clear();
    const int tokens = tail.scheduler->Contribute(budget, 0, may_wait, tail.now, &tail.builder);
    layers = 0;
    if (tokens > 0) tail.backend.Begin(tail.builder.batch());
    tail.Collect();
    return tokens;
  }
  // Runs its layers as far as may be. True: the step is done.
  bool Go() {
    const int ready = tail.scheduler->ready_layers();
    for (; layers < ready; ++layers) {
      tail.backend.RunLayers(layers, layers + 1);
      tail.scheduler->LayersDone(layers + 1);
    }
    if (layers == kLayers) tail.scheduler->StepDone(tail.backend, &tail.sampler, tail.now);
    tail.Collect();
    return layers == kLayers;
  }
  // Every cell of the prompt was told to the transfer room, each once.
  void RequireAllPassedOn() const {
    std::set<std::pair<int, int>> cells;
    for (const SendCells& sent : tail.sent)
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i)
          REQUIRE(cells.emplace(plane, sent.first_page + static_cast<int>(i)).second);
    REQUIRE(static_cast<int>(cells.size()) == (n + kPageTokens - 1) / kPageTokens * kLayers);
    REQUIRE(tail.commits.size() == 1);
  }
  void RequireFirstToken() const {
    REQUIRE(tail.tokens.size() == 1);
    REQUIRE(tail.tokens[0].position == n);
    REQUIRE(tail.tokens[0].token == Expected(id, n).tokens[0]);
    REQUIRE(head.tokens.empty());
  }

  const RequestId id;
  const int n, c;
  TransitionCounts counts;
  Bench head, tail;
  int arrived = 0, layers = 0;
};

TEST_CASE("the tail's first token is the sequential one, plane by plane, and all KV is passed on") {
  const auto [n, c] = GENERATE(table<int, int>({{9, 4}, {16, 8}, {41, 20}, {41, 40}, {41, 4}}));
  const int chunk = GENERATE(0, 3, 4, 7);
  const int budget = GENERATE(2, 5, 1000);
  const Incarnation sink = GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  Relay relay(7, n, c, sink, chunk);
  REQUIRE(relay.tail.awaits.size() <= 1);
  if (relay.tail.awaits.empty()) REQUIRE(relay.Begin(budget) == 0);
  REQUIRE(relay.Begin(budget) == 0);  // nothing has arrived
  relay.RunHead(budget);
  REQUIRE(relay.head.computed.empty());
  for (int planes = 1; planes <= kLayers; ++planes) {
    relay.Flow(planes);
    if (planes == 1) REQUIRE(relay.Begin(budget) > 0);
    REQUIRE(relay.Go() == (planes == kLayers));
  }
  while (relay.Begin(budget) > 0) REQUIRE(relay.Go());
  relay.RequireFirstToken();
  REQUIRE(relay.tail.computed.count(7) == 1);

  if (sink == kPeer) {
    relay.RequireAllPassedOn();
    relay.tail.EndHandoff(7);
  }
  REQUIRE(relay.tail.ends.at(7).reason == EndReason::kLength);
  REQUIRE(relay.tail.pool->held() == relay.tail.KeptPages());

  REQUIRE(relay.head.commits.size() == 1);
  REQUIRE(relay.head.commits[0].record.n_tokens == c);
  REQUIRE(relay.head.ends.empty());
  relay.head.EndHandoff(kInflow + 7);
  REQUIRE(relay.head.ends.at(7).reason == EndReason::kLength);
  REQUIRE(relay.head.ends.at(7).was_prefill);
  REQUIRE(relay.head.pool->held() == 0);
}

TEST_CASE("a suspended step gives way, and the slice waits for all of its inflow") {
  Relay relay(7, 23, 12, kPeer);
  relay.Begin();
  relay.RunHead();
  relay.Flow(1);
  REQUIRE(relay.Begin(1000, false) == 0);  // beside rows: not before all is there
  REQUIRE(relay.Begin() == 11);
  REQUIRE_FALSE(relay.Go());
  relay.Flow(2);
  REQUIRE_FALSE(relay.Go());
  relay.tail.scheduler->GiveWay();
  REQUIRE_FALSE(relay.tail.scheduler->in_step());
  REQUIRE(relay.Begin() == 0);
  relay.Flow(3);
  REQUIRE(relay.Begin(1000, false) == 11);
  REQUIRE(relay.Go());
  relay.RequireFirstToken();
  relay.RequireAllPassedOn();
  relay.tail.EndHandoff(7);
  REQUIRE(relay.tail.pool->held() == 0);
}

TEST_CASE("other prompts run while a slice waits, and never share its suspended step") {
  Relay relay(7, 23, 12, kPeer);
  relay.Begin();
  relay.RunHead();
  relay.Flow(1);
  relay.tail.Admit(Bench::Request(8, 40));
  REQUIRE(relay.Begin() == 40);
  REQUIRE(relay.tail.scheduler->ready_layers() == kLayers);
  REQUIRE(relay.Go());
  REQUIRE(relay.Begin() == 11);
  relay.tail.Admit(Bench::Request(9, 5, kPeer));
  relay.tail.scheduler->Meanwhile(relay.tail.now);
  relay.tail.Collect();
  REQUIRE(relay.tail.opens.back() == 9);
  REQUIRE_FALSE(relay.Go());
  relay.Flow(3);
  REQUIRE(relay.Go());
  REQUIRE(relay.tail.tokens.back().token == Expected(7, 23).tokens[0]);
}

// Stages: 0 before pages, 1 awaited, 2 one plane, 3 suspended after one, 4 suspended after two.
void RunTo(Relay& relay, int stage) {
  if (stage == 0) return;
  relay.Begin();
  if (stage == 1) return;
  relay.RunHead();
  relay.Flow(1);
  if (stage == 2) return;
  REQUIRE(relay.Begin() == relay.n - relay.c);
  REQUIRE_FALSE(relay.Go());
  if (stage == 3) return;
  relay.Flow(2);
  REQUIRE_FALSE(relay.Go());
}

TEST_CASE(
    "a tail that is cancelled ends when nothing can read or write its pages, at every stage") {
  const int stage = GENERATE(0, 1, 2, 3, 4);
  const bool inflow_last = GENERATE(false, true);
  Relay relay(7, 23, 12, kPeer);
  RunTo(relay, stage);
  const bool awaited = !relay.tail.awaits.empty();
  relay.tail.scheduler->Cancel(7, 1);
  relay.tail.Collect();
  REQUIRE_FALSE(relay.tail.scheduler->in_step());
  REQUIRE(relay.tail.ends.empty());
  REQUIRE(relay.tail.cancels.size() == (awaited ? 2u : 1u));
  REQUIRE(relay.Begin() == 0);
  if (inflow_last) {
    relay.tail.EndHandoff(7, absl::CancelledError("cancelled"));
    REQUIRE(relay.tail.ends.empty() == awaited);
    if (awaited) relay.FailInflow();
  } else {
    if (awaited) relay.FailInflow();
    REQUIRE(relay.tail.ends.empty());
    relay.tail.EndHandoff(7, absl::CancelledError("cancelled"));
  }
  REQUIRE(relay.tail.ends.at(7).reason == EndReason::kCancelled);
  REQUIRE(relay.tail.pool->held() == 0);
  REQUIRE(relay.tail.tokens.empty());
}

TEST_CASE("a tail cancelled while its last planes land ends with them") {
  Relay relay(7, 23, 12, kSelf);
  RunTo(relay, 3);
  relay.tail.scheduler->Cancel(7, 1);
  relay.tail.Collect();
  REQUIRE(relay.tail.ends.empty());
  relay.Flow(3);
  REQUIRE(relay.tail.ends.at(7).reason == EndReason::kCancelled);
  REQUIRE(relay.tail.pool->held() == 0);
}

TEST_CASE("an inflow that fails ends the tail's part, with the handoff at fault") {
  const int stage = GENERATE(1, 2, 3, 4);
  const Incarnation sink = GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  Relay relay(7, 23, 12, sink);
  RunTo(relay, stage);
  relay.FailInflow();
  REQUIRE_FALSE(relay.tail.scheduler->in_step());
  if (sink == kPeer) {
    REQUIRE(relay.tail.ends.empty());
    REQUIRE(relay.tail.cancels.size() == 1);
    relay.tail.EndHandoff(7, absl::CancelledError("cancelled"));
  }
  const PartEnded& end = relay.tail.ends.at(7);
  REQUIRE(end.reason == EndReason::kFailed);
  REQUIRE(end.fault == PartFault::kHandoff);
  REQUIRE(relay.tail.pool->held() == 0);
}

TEST_CASE("when the decode handoff fails, the tail's pages are kept until its inflow has ended") {
  const int stage = GENERATE(1, 2, 3, 4);
  Relay relay(7, 23, 12, kPeer);
  RunTo(relay, stage);
  relay.tail.EndHandoff(7, absl::UnavailableError("decode worker lost"));
  REQUIRE(relay.tail.ends.empty());
  REQUIRE(relay.tail.pool->held() > 0);
  relay.FailInflow();
  REQUIRE(relay.tail.ends.at(7).reason == EndReason::kFailed);
  REQUIRE(relay.tail.pool->held() == 0);
}

TEST_CASE("after all planes have come, the end of the inflow's handoff says nothing any more") {
  Relay relay(7, 23, 12, kPeer);
  RunTo(relay, 4);
  relay.Flow(3);
  relay.FailInflow();  // the head died before its COMMIT
  REQUIRE(relay.Go());
  relay.RequireFirstToken();
  relay.tail.EndHandoff(7);
  REQUIRE(relay.tail.ends.at(7).reason == EndReason::kLength);
}

TEST_CASE("a head that waits for the tail's pages tells the router of no want of room") {
  Relay relay(7, 23, 12, kPeer);
  relay.head.Step(1000);
  relay.head.scheduler->NoRoom({.ticket_id = Bench::Id(kInflow + 7), .expected_wait_us = 5});
  relay.head.Collect();
  REQUIRE(relay.head.no_room == 0);
  relay.head.scheduler->CancelAll();
  relay.head.EndHandoff(kInflow + 7, absl::CancelledError("cancelled"));
  REQUIRE(relay.head.ends.at(7).reason == EndReason::kCancelled);
}

TEST_CASE("KV that came by an inflow is found by later prompts, and never overwritten by one") {
  Relay relay(7, 24, 12, 0);
  RunTo(relay, 4);
  relay.Flow(3);
  REQUIRE(relay.Go());
  relay.RequireFirstToken();
  relay.tail.Admit(Bench::Request(7, 25));
  relay.tail.Step(1000);
  REQUIRE(relay.tail.tokens.back().token == Expected(7, 25).tokens[0]);
  REQUIRE(relay.tail.scheduler->reused_tokens() == 24);
  // A tail does not land its inflow in pages that others may hold.
  PrefillRequest again = TailRequest(7, 24, 12, 0);
  again.epoch = 2;
  relay.tail.Admit(again);
  REQUIRE(relay.Begin() == 0);
  REQUIRE(relay.tail.awaits.size() == 2);
  for (const int32_t page : relay.tail.awaits[1].pages) {
    REQUIRE(relay.tail.pool->is_held(page));
    const auto& first = relay.tail.awaits[0].pages;
    REQUIRE(std::find(first.begin(), first.end(), page) == first.end());
  }
  relay.tail.scheduler->CancelAll();
  relay.FailInflow();
  REQUIRE(relay.tail.pool->held() == 0);
}

TEST_CASE("ranks that make no sense are refused with the reason") {
  Bench b;
  const auto refusal = [&b](PrefillRequest request) {
    const RequestId id = request.request_id;
    b.Admit(std::move(request));
    b.Collect();
    REQUIRE(b.ends.at(id).reason == EndReason::kFailed);
    REQUIRE(b.pool->held() == 0);
    return b.ends.at(id).message;
  };
  REQUIRE(refusal(TailRequest(1, 23, 10, kPeer)) ==
          "an inflow of 10 tokens before a prompt of 23, pages of 4");
  REQUIRE(refusal(TailRequest(2, 24, 24, kPeer)).find("an inflow of 24") == 0);
  REQUIRE(refusal(TailRequest(3, 24, -4, kPeer)).find("an inflow of -4") == 0);
  REQUIRE(refusal(HeadRequest(4, 24, 10)).find("a head's slice of 10 tokens") == 0);
  PrefillRequest to_itself = HeadRequest(5, 24, 12);
  to_itself.sink.incarnation = kSelf;
  REQUIRE(refusal(to_itself).find("a head's slice") == 0);
  PrefillRequest to_nobody = HeadRequest(6, 24, 12);
  to_nobody.sink.incarnation = 0;
  REQUIRE(refusal(to_nobody).find("a head's slice") == 0);
}

}  // namespace
}  // namespace baton
