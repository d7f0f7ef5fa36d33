// Relays in rounds: each rank computes several slices of a prompt, and the KV that it lacks between
// two slices comes around the ring of ranks.
#include <random>

#include "tests/prefill_worker/relay_fixture.h"

namespace baton {
namespace {

constexpr int kMaxSlice = 16;

RankOptions With(int slice_keys, bool cut_through) {
  return {.slice_keys = slice_keys, .whole_planes = !cut_through, .max_slice_tokens = kMaxSlice};
}

std::unique_ptr<SchedulerFixture> MakeWorker(const RankOptions& options = With(4, true),
                                             int n_pages = 600) {
  return std::make_unique<SchedulerFixture>(n_pages, 0, 4, nullptr, true, std::vector<int>{},
                                            RopeDesc{}, options);
}

// Requires that nothing is left of an ended attempt.
void RequireClean(SchedulerFixture* worker) {
  worker->ForgetKept();
  REQUIRE(worker->pool->held() == worker->KeptPages());
}

// A ring of workers and one relay on them.
struct Ring {
  Ring(int n_ranks, std::vector<int> ends, Incarnation sink, bool pushes = false,
       const RankOptions& options = With(4, true)) {
    std::vector<SchedulerFixture*> ranks;
    for (int i = 0; i < n_ranks; ++i) {
      workers.push_back(MakeWorker(options));
      ranks.push_back(workers.back().get());
    }
    relay = std::make_unique<RelayFixture>(7, std::move(ends), ranks, sink, pushes);
  }
  ~Ring() {
    for (auto& worker : workers) {
      worker->scheduler->prompts().Abandon();
      for (const HandoffArrived& kept : worker->kept) worker->pool->Give(kept.pages);
    }
  }
  // Handles pages and promises, without computing.
  void Start() {
    relay->AdmitAll();
    for (int i = 0; i < relay->n_ranks(); ++i) {
      for (auto it = workers.rbegin(); it != workers.rend(); ++it) {
        (*it)->builder.Clear();
        (*it)->scheduler->Contribute({.tokens = 1000}, 0, (*it)->now, &(*it)->builder);
        (*it)->Collect();
      }
      relay->PromiseAll();
    }
  }
  // Runs a block of each worker, then lands all waiting cells. False: nothing was computed.
  bool Turn(int rows) {
    int n = 0;
    for (auto& worker : workers) n += worker->Step(rows);
    relay->PromiseAll();
    for (int hop = 0; hop + 1 < relay->n_slices(); ++hop)
      if (relay->Pages(hop) != nullptr) relay->Flow(hop);
    return n > 0;
  }
  void Run(int rows) {
    for (int idle = 0; idle < 2;) idle = Turn(rows) ? 0 : idle + 1;
  }
  // Answers each cancel as the transfer room does at the end of the handoff.
  void AnswerCancels() {
    for (auto& worker : workers)
      for (const CancelHandoff& cancel : std::exchange(worker->cancels, {})) {
        worker->scheduler->prompts().On(
            HandoffEnded{cancel.ticket_id, absl::CancelledError("cancelled"), 0}, worker->now);
        worker->scheduler->prompts().On(
            InflowFailed{cancel.ticket_id, 0, absl::CancelledError("cancelled")}, worker->now);
        worker->Collect();
      }
  }
  SchedulerFixture& head() { return *workers.front(); }
  SchedulerFixture& tail() { return *workers.back(); }

  std::vector<std::unique_ptr<SchedulerFixture>> workers;
  std::unique_ptr<RelayFixture> relay;
};

TEST_CASE("in rounds the first token is the sequential one, and each hop is what is lacking") {
  const auto [n_ranks, ends] = GENERATE(table<int, std::vector<int>>(
      {{2, {8, 16, 24, 33}}, {2, {4, 20, 24, 40, 52, 53}}, {3, {16, 28, 36, 40, 44, 50}}}));
  const int rows = GENERATE(3, 1000);
  const int segment = GENERATE(0, 4, 8);
  const bool cut_through = GENERATE(true, false);
  const Incarnation sink = GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  const bool pushes = sink == kPeer && GENERATE(false, true);
  Ring ring(n_ranks, ends, sink, pushes, With(segment, cut_through));
  ring.Start();
  ring.Run(rows);
  ring.relay->RequireFirstToken();
  REQUIRE(ring.tail().kept.empty());  // the ring still reads the pages
  ring.relay->EndAll();
  for (const auto& worker : ring.workers) {
    RequireClean(worker.get());
    REQUIRE(worker->tokens.size() == (worker.get() == &ring.tail() ? 1u : 0u));
  }
  if (sink == kSelf) REQUIRE(ring.tail().kept.size() == 1);
  // The slices of the receiver before its last one do not cross the hop.
  for (int rank = 0; rank < n_ranks; ++rank) {
    int carried = 0, own = 0;
    const auto n_slices = static_cast<int>(ends.size());
    const int last = n_slices - n_ranks + rank;
    for (int hop = 0; hop < last; ++hop)
      if ((hop + 1) % n_ranks == rank) carried += ring.relay->HopPages(hop);
    for (int slice = rank; slice < last; slice += n_ranks)
      own += ends[slice] - (slice == 0 ? 0 : ends[slice - 1]);
    REQUIRE(carried * kPageTokens == (last == 0 ? 0 : ends[last - 1]) - own);
  }
}

TEST_CASE("a rank's next slice runs while the ring is still on the one before") {
  Ring ring(2, {16, 32, 48, 60}, kPeer);
  ring.Start();
  RelayFixture& relay = *ring.relay;
  while (ring.head().Step(1000) > 0) {
  }
  REQUIRE(ring.head().awaits.size() == 1);  // the second round's, from the start of the prompt
  REQUIRE(ring.head().awaits[0].pages.size() == 4);
  REQUIRE(ring.head().commits.size() == 1);
  REQUIRE_FALSE(ring.head().scheduler->has_slice());
  relay.PromiseAll();
  relay.Flow(0, 1);
  REQUIRE(ring.tail().Step(1000) == 16);  // projects its first layer and passes it on
  REQUIRE(ring.tail().opens.size() == 2);
  relay.PromiseAll();
  relay.Flow(1);
  REQUIRE(ring.head().Step(1000) == 16);
  REQUIRE(ring.head().blocks.back() == SliceBlock{SliceBlock::Kind::kProject, 0, 0, 16});
  ring.Run(1000);
  relay.RequireFirstToken();
  relay.EndAll();
}

TEST_CASE("rows meet the keys of earlier rounds before the inflow is there") {
  Ring ring(2, {16, 32, 48, 60}, kPeer);
  ring.Start();
  RelayFixture& relay = *ring.relay;
  while (ring.head().Step(1000) > 0) {
  }
  relay.PromiseAll();
  relay.Flow(0);
  ring.tail().Step(1000);
  relay.PromiseAll();
  relay.Land(1, relay.Waiting(1).front());
  REQUIRE(ring.head().Step(1000) == 16);
  ring.head().Step(1000);
  REQUIRE(ring.head().blocks.back() == SliceBlock{SliceBlock::Kind::kAttend, 0, 0, 16, 20});
  ring.Run(1000);
  relay.RequireFirstToken();
  relay.EndAll();
}

TEST_CASE("a round begins when all of the inflow before it is there, its last layer too") {
  Ring ring(3, {8, 16, 24, 32, 40, 48}, kPeer);
  ring.Start();
  RelayFixture& relay = *ring.relay;
  SchedulerFixture& middle = *ring.workers[1];
  while (ring.head().Step(1000) > 0) {
  }
  // The rank needs nothing of the last layer for its own slice.
  const auto cells = relay.Waiting(0);
  for (size_t i = 0; i + 1 < cells.size(); ++i) relay.Land(0, cells[i]);
  for (int i = 0; i < 20; ++i) {
    for (auto& worker : ring.workers) worker->Step(1000);
    relay.PromiseAll();
    for (int hop = 1; hop < 4; ++hop)
      if (relay.Pages(hop) != nullptr) relay.Flow(hop);
  }
  REQUIRE(relay.hops[3].landed.size() > 0);  // so the next round waits only for hop 0
  REQUIRE(middle.commits.empty());
  REQUIRE(middle.blocks.back() == SliceBlock{SliceBlock::Kind::kProject, 2, 0, 8});
  relay.Land(0, cells.back());
  REQUIRE(middle.commits.size() == 1);
  ring.Run(1000);
  relay.RequireFirstToken();
  relay.EndAll();
}

TEST_CASE("between two slices of a prompt the worker computes others") {
  Ring ring(2, {16, 32, 48, 60}, kPeer);
  ring.Start();
  SchedulerFixture& head = ring.head();
  auto other_tail = MakeWorker();
  RelayFixture other(8, {16, 20}, {&head, other_tail.get()}, kPeer);
  other.AdmitAll();
  for (int i = 0; i < 2; ++i) {
    other_tail->Step(1000);
    other.PromiseAll();
    head.builder.Clear();
    head.scheduler->Contribute({.tokens = 0}, 0, head.now, &head.builder);
    head.Collect();
  }
  while (head.Step(1000) > 0) {
  }
  other.RequireAllPassedOn(0);  // although the first prompt is not finished
  head.Admit(SchedulerFixture::Request(9, 30));
  head.Step(1000);
  REQUIRE(head.ends.contains(9));
  ring.Run(1000);
  ring.relay->RequireFirstToken();
  ring.relay->EndAll();
  other.Flow(0);
  while (other_tail->Step(1000) > 0) {
  }
  other.RequireFirstToken();
  other.EndAll();
}

TEST_CASE("a cancel between any two blocks of any round leaves nothing behind") {
  const bool pushes = GENERATE(false, true);
  const Incarnation sink = pushes ? kPeer : GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  for (int n = 0;; ++n) {
    Ring ring(2, {8, 16, 24, 33}, sink, pushes);
    ring.Start();
    for (int i = 0; i < n; ++i) ring.Turn(5);
    const bool is_computed = ring.tail().computed.contains(7);
    for (auto& worker : ring.workers) worker->scheduler->prompts().Cancel(7, 1);
    for (auto& worker : ring.workers) worker->Collect();
    ring.AnswerCancels();
    for (auto& worker : ring.workers) {
      REQUIRE(worker->ends.contains(7));
      REQUIRE(worker->scheduler->prompts().queue().size() == 0);
      RequireClean(worker.get());
      worker->Admit(SchedulerFixture::Request(9, 30));
      while (worker->Step(1000) > 0) {
      }
      REQUIRE(worker->tokens.back().token == Expected(9, 30).tokens[0]);
    }
    if (is_computed) break;
    REQUIRE(n < 1000);
  }
}

TEST_CASE("what becomes of a hop that breaks") {
  const bool is_computed = GENERATE(false, true);
  Ring ring(2, {8, 16, 24, 33}, kPeer);
  ring.Start();
  while (is_computed && ring.Turn(1000)) {
  }
  for (int i = 0; i < 5 && !is_computed; ++i) ring.Turn(1000);
  REQUIRE(ring.tail().computed.contains(7) == is_computed);
  const RequestId ring_hop = HopId(7, 1);
  REQUIRE(std::count(ring.tail().opens.begin(), ring.tail().opens.end(), ring_hop) == 1);
  ring.tail().EndHandoff(ring_hop, absl::UnavailableError("first rank lost"));
  REQUIRE(ring.tail().ends.empty());  // the tail's other handoff has not ended
  // The tail needs the head until the tail has its token.
  REQUIRE(ring.tail().cancels.empty() == is_computed);
  ring.AnswerCancels();
  if (is_computed) ring.tail().EndHandoff(7);
  REQUIRE(ring.tail().ends.at(7).reason == (is_computed ? EndReason::kLength : EndReason::kFailed));
  if (!is_computed) REQUIRE(ring.tail().ends.at(7).ticket_id == SchedulerFixture::Id(ring_hop));
  // For the head, the hop of its first slice counts like the hop of its last one.
  ring.head().EndHandoff(HopId(7, 0), absl::UnavailableError("next rank lost"));
  ring.AnswerCancels();
  REQUIRE(ring.head().ends.at(7).reason == EndReason::kFailed);
  REQUIRE(ring.head().ends.at(7).fault == PartFault::kHandoff);
  // Both keep their slices for another attempt, unless the token is computed.
  REQUIRE(ring.head().scheduler->prompts().pages().left().size() == 1);
  REQUIRE(ring.tail().scheduler->prompts().pages().left().size() == (is_computed ? 0 : 1));
  for (auto& worker : ring.workers) {
    worker->ForgetKept();
    REQUIRE(worker->scheduler->prompts().pages().left().size() == 0);
    REQUIRE(worker->pool->held() == 0);
  }
}

TEST_CASE("a head whose handoffs end before its inflow ends with that") {
  Ring ring(2, {8, 16, 24, 33}, kPeer);
  ring.Start();
  for (int turn = 0; turn < 20; ++turn) {  // all but the last plane around the ring
    for (auto& worker : ring.workers) worker->Step(1000);
    ring.relay->PromiseAll();
    ring.relay->Flow(0);
    if (ring.relay->Pages(1) != nullptr) ring.relay->Flow(1, kLayers - 1);
  }
  SchedulerFixture& head = ring.head();
  REQUIRE(head.commits.size() == 2);  // its second slice goes on alone
  for (const RequestId hop : {HopId(7, 0), HopId(7, 2)}) head.EndHandoff(hop);
  REQUIRE(head.ends.empty());
  ring.relay->Flow(1);
  REQUIRE(head.ends.at(7).reason == EndReason::kLength);
}

TEST_CASE("of KV that is there already a first rank uses no more than its first slice") {
  Ring ring(2, {8, 16, 24, 33}, kPeer);
  ring.head().Admit(SchedulerFixture::Request(7, 33));
  while (ring.head().Step(1000) > 0) {
  }
  ring.head().ends.clear();
  ring.head().tokens.clear();
  ring.head().computed.clear();
  ring.Start();
  ring.Run(1000);
  REQUIRE(ring.head().scheduler->prompts().pages().reused_tokens() ==
          4);  // the last token's page is computed again
  ring.relay->RequireFirstToken();
  ring.relay->EndAll();
}

TEST_CASE("all tokens to come in rounds are told, with the keys they see") {
  Ring ring(2, {8, 16, 24, 33}, kPeer);
  ring.Start();
  const auto pairs = [](double tokens, double before) { return tokens * (before + tokens / 2); };
  REQUIRE(ring.head().scheduler->prompts().queue().queued().tokens == 16);
  REQUIRE(ring.head().scheduler->prompts().queue().queued().pairs ==
          Approx(pairs(8, 0) + pairs(8, 16)));
  REQUIRE(ring.tail().scheduler->prompts().queue().queued().tokens == 17);
  while (ring.head().Step(1000) > 0) {
  }
  REQUIRE(ring.head().scheduler->prompts().queue().queued().tokens == 8);
  REQUIRE(ring.head().scheduler->prompts().queue().queued().pairs == Approx(pairs(8, 16)));
}

TEST_CASE("rounds that make no sense are refused with the reason") {
  auto worker = MakeWorker();
  const RelayFixture relay(7, {8, 16, 24, 33}, {worker.get(), worker.get()}, kPeer, true);
  RequestId id = 100;
  const auto refusal = [&](int rank, auto spoil) {
    PrefillRequest request = relay.RequestOf(rank);
    request.request_id = ++id;
    spoil(&request);
    worker->Admit(std::move(request));
    worker->Collect();
    REQUIRE(worker->ends.at(id).reason == EndReason::kFailed);
    REQUIRE(worker->pool->held() == 0);
    return worker->ends.at(id).message;
  };
  using Request = PrefillRequest*;
  REQUIRE(refusal(0, [](Request r) { r->slices[0].end = 24; }) ==
          "a slice of 24 tokens; this worker computes at most 16 (prefill.max_slice_tokens)");
  REQUIRE(refusal(0, [](Request r) { r->slices[0].end = 10; }) ==
          "a slice that is tokens [0, 10) after token 0, pages of 4");
  REQUIRE(refusal(0, [](Request r) { r->slices[0].end = 12; }) ==
          "a handoff of 2 pages from 0 on, of a slice that is tokens [0, 12)");
  REQUIRE(refusal(0, [](Request r) { r->slices[1].begin = 4; }).find("tokens [4, 24)") !=
          std::string::npos);
  REQUIRE(refusal(0, [](Request r) { r->slices[1].inflow = {}; }).find("tokens [16, 24)") !=
          std::string::npos);
  REQUIRE(refusal(0, [](Request r) { r->slices[1].begin = 8; }).find("tokens [8, 24)") !=
          std::string::npos);
  REQUIRE(refusal(0, [](Request r) {
            r->slices.insert(r->slices.begin(), r->slices[0]);
          }).find("tokens [0, 8) after token 8") != std::string::npos);
  REQUIRE(refusal(1, [](Request r) {
            r->slices[0].outputs[0].peer.incarnation = kSelf;
          }).find("a slice up to token 16 for worker") == 0);
  REQUIRE(refusal(1, [](Request r) {
            r->slices[0].outputs[1].ticket.n_pages = 1;
          }).find("a handoff of 1 pages") == 0);
  REQUIRE(refusal(1, [](Request r) { r->slices.pop_back(); }) == "1 slices up to token 16 of 33");
  REQUIRE(refusal(1, [](Request r) { r->slices.clear(); }) == "0 slices up to token 0 of 33");
}

}  // namespace
}  // namespace baton
