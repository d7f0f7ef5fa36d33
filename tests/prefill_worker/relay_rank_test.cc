// Schedulers as the ranks of relays: their slices run block by block while inflows arrive late, in
// any order, or never.
#include <random>

#include "tests/prefill_worker/relay_chain_fixture.h"

namespace baton {
namespace {

TEST_CASE("the tail's first token is the sequential one, and all KV is passed on") {
  const auto [n, c] = GENERATE(table<int, int>({{9, 4}, {16, 8}, {41, 20}, {41, 40}, {41, 4}}));
  const int rows = GENERATE(2, 5, 1000);
  const int segment = GENERATE(0, 4, 8);
  const bool cut_through = GENERATE(true, false);
  const Incarnation sink = GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  const bool pushes = sink == kPeer && GENERATE(false, true);
  RelayChainFixture chain({c, n}, sink, With(segment, cut_through), pushes);
  RelayFixture& relay = *chain.relay;
  while (chain.head().Step(rows) > 0) {
  }
  REQUIRE(chain.head().computed.empty());
  REQUIRE(chain.tail().Step(rows) == 0);  // nothing has arrived
  for (int planes = 1; planes <= kLayers; ++planes) {
    relay.Flow(0, planes);
    while (chain.tail().Step(rows) > 0) {
    }
    REQUIRE(chain.tail().tokens.size() == (planes == kLayers ? 1u : 0u));
  }
  relay.RequireFirstToken();
  relay.EndAll();
  REQUIRE(chain.head().tokens.empty());
  for (const auto& worker : chain.workers) {
    worker->ForgetKept();
    REQUIRE(worker->pool->held() == worker->KeptPages());
  }
}

TEST_CASE("KV is announced as soon as a block of rows is projected") {
  RelayChainFixture chain({24, 40}, kPeer);
  SchedulerFixture& head = chain.head();
  REQUIRE(head.Step(10) == 10);
  REQUIRE(head.blocks.back() == SliceBlock{SliceBlock::Kind::kProject, 0, 0, 10});
  REQUIRE(chain.relay->Waiting(0).size() == 2);  // the third page is not full
  REQUIRE(head.Step(10) == 10);
  REQUIRE(chain.relay->Waiting(0).size() == 5);
  // The tail uses cells before the layer is complete.
  chain.relay->Flow(0);
  SchedulerFixture& tail = chain.tail();
  while (tail.Step(1000) > 0) {
  }
  REQUIRE(tail.blocks == std::vector<SliceBlock>{{SliceBlock::Kind::kProject, 0, 0, 16},
                                                 {SliceBlock::Kind::kAttend, 0, 0, 16, 20}});
  REQUIRE(tail.sent.back().first_page == 6);  // 16 own tokens from the seventh page on
  REQUIRE(tail.sent.back().pages.size() == 4);
}

TEST_CASE("as in KV-Runahead a head sends a layer when all of it is there") {
  RelayChainFixture chain({16, 32, 40}, kPeer, With(0, false));
  RelayFixture& relay = *chain.relay;
  SchedulerFixture& head = chain.head();
  SchedulerFixture& middle = *chain.workers[1];
  REQUIRE(head.Step(10) == 10);
  REQUIRE(relay.Waiting(0).empty());
  REQUIRE(head.Step(10) == 6);
  REQUIRE(relay.Waiting(0).size() == 4);
  const auto cells = relay.Waiting(0);
  for (int i = 0; i < 3; ++i) relay.Land(0, cells[static_cast<size_t>(i)]);
  while (middle.Step(1000) > 0) {
  }
  REQUIRE(relay.Waiting(1).empty());
  relay.Land(0, cells[3]);
  REQUIRE(relay.Waiting(1).size() == 8);
}

TEST_CASE("a rank in the middle passes on what arrives, and ends with the last of it") {
  RelayChainFixture chain({16, 32, 41}, kPeer);
  RelayFixture& relay = *chain.relay;
  SchedulerFixture& middle = *chain.workers[1];
  while (chain.head().Step(1000) > 0) {
  }
  relay.Flow(0, 2);
  while (middle.Step(1000) > 0) {
  }
  // The middle rank needs no inflow of the last layer: there it only projects.
  REQUIRE(middle.blocks.back() == SliceBlock{SliceBlock::Kind::kProject, 2, 0, 16});
  REQUIRE_FALSE(middle.scheduler->has_slice());
  REQUIRE(middle.commits.empty());
  REQUIRE(relay.Waiting(1).size() == 8 * 2 + 4);
  relay.Land(0, relay.Waiting(0).front());
  REQUIRE(relay.Waiting(1).size() == 8 * 2 + 5);
  relay.Flow(0);
  REQUIRE(middle.commits.size() == 1);
  relay.RequireAllPassedOn(1);
  relay.Flow(1);
  while (chain.tail().Step(1000) > 0) {
  }
  relay.RequireFirstToken();
  relay.EndAll();
}

// Runs all actions of a relay's ranks, their links and other prompts in any order.
TEST_CASE("relays that share workers end in any interleaving, with the right tokens") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    INFO(seed);
    std::mt19937 random(seed);
    const auto below = [&random](int n) { return static_cast<int>(random() % unsigned(n)); };
    const RankOptions options = With(4 * below(3), below(4) > 0);
    std::vector<std::unique_ptr<SchedulerFixture>> workers;
    for (int i = 0; i < 4; ++i) workers.push_back(MakeWorker(options, 400));
    std::vector<RelayFixture> relays;
    for (int i = 0; i < 6; ++i) {
      std::vector<SchedulerFixture*> ranks;
      for (auto& worker : workers) ranks.push_back(worker.get());
      std::shuffle(ranks.begin(), ranks.end(), random);  // any order: circles too
      ranks.resize(static_cast<size_t>(2 + below(3)));
      std::vector<int> ends;
      for (size_t slice = ranks.size() * size_t(1 + below(3)); slice > 0; --slice)
        ends.push_back((ends.empty() ? 0 : ends.back()) + kPageTokens * (1 + below(4)));
      ends.back() -= below(4);
      const bool is_remote = below(2) > 0;
      relays.emplace_back(static_cast<RequestId>(i + 1), ends, ranks, is_remote ? kPeer : 0,
                          is_remote && below(2) > 0);
    }
    std::vector<std::pair<int, int>> to_admit;
    for (int i = 0; i < 6; ++i)
      for (int rank = 0; rank < relays[i].n_ranks(); ++rank) to_admit.emplace_back(i, rank);
    std::shuffle(to_admit.begin(), to_admit.end(), random);
    RequestId next_prompt = 100;
    const auto act = [&] {
      if (!to_admit.empty() && below(4) == 0) {
        relays[static_cast<size_t>(to_admit.back().first)].Admit(to_admit.back().second);
        to_admit.pop_back();
      }
      SchedulerFixture& worker = *workers[static_cast<size_t>(below(4))];
      if (next_prompt < 140 && below(20) == 0)
        worker.Admit(SchedulerFixture::Request(next_prompt++, 1 + below(30)));
      worker.Step(1 + below(12));
      RelayFixture& relay = relays[static_cast<size_t>(below(6))];
      relay.PromiseAll();
      const int hop = below(relay.n_slices() - 1);
      if (relay.Pages(hop) == nullptr) return;
      for (int cells = below(8); cells > 0; --cells) {
        const std::vector<RelayFixture::Cell> waiting = relay.Waiting(hop);
        if (waiting.empty()) break;
        relay.Land(hop, waiting[static_cast<size_t>(below(static_cast<int>(waiting.size())))]);
      }
    };
    const auto all_computed = [&] {
      return std::all_of(relays.begin(), relays.end(),
                         [](const RelayFixture& r) { return r.tail().computed.contains(r.id); });
    };
    for (int n = 0; n < 20'000 && !all_computed(); ++n) act();
    REQUIRE(all_computed());
    for (RelayFixture& relay : relays) {
      relay.RequireFirstToken();
      for (int hop = 0; hop + 1 < relay.n_slices(); ++hop) relay.Flow(hop);
      relay.EndAll();
    }
    for (auto& worker : workers) {
      while (worker->Step(100) > 0) {
      }
      worker->ForgetKept();
      REQUIRE(worker->pool->held() == 0);
    }
  }
}

TEST_CASE("relays in opposite directions over the same two workers do not wait in a circle") {
  auto a = MakeWorker(), b = MakeWorker();
  RelayFixture there(1, {20, 40}, {a.get(), b.get()}, 0), back(2, {20, 40}, {b.get(), a.get()}, 0);
  // Both tails come first and have pages, but neither takes the place of a slice.
  there.Admit(1);
  back.Admit(1);
  for (SchedulerFixture* worker : {a.get(), b.get()}) {
    REQUIRE(worker->Step(1000) == 0);
    REQUIRE(worker->awaits.size() == 1);
    REQUIRE_FALSE(worker->scheduler->has_slice());
  }
  there.Admit(0);
  back.Admit(0);
  for (int round = 0; round < 50; ++round)
    for (SchedulerFixture* worker : {a.get(), b.get()}) {
      worker->Step(1000);
      for (RelayFixture* relay : {&there, &back}) {
        relay->PromiseAll();
        relay->Flow(0);
      }
    }
  there.RequireFirstToken();
  back.RequireFirstToken();
  for (RelayFixture* relay : {&there, &back}) relay->EndAll();
}

TEST_CASE("one slice at a time: the next rank begins when it is done") {
  auto worker = MakeWorker();
  std::vector<std::unique_ptr<SchedulerFixture>> tails;
  std::vector<RelayFixture> relays;
  for (const RequestId id : {1u, 2u}) {
    tails.push_back(MakeWorker());
    relays.emplace_back(id, std::vector<int>{16, 20},
                        std::vector<SchedulerFixture*>{worker.get(), tails.back().get()}, kPeer);
    relays.back().AdmitAll();
    for (int round = 0; round < 2; ++round) {
      tails.back()->Step(1000);
      relays.back().PromiseAll();
    }
  }
  worker->Step(1000);
  for (RelayFixture& relay : relays) relay.PromiseAll();
  REQUIRE(worker->Step(1000) == 16);
  REQUIRE_FALSE(relays[0].Waiting(0).empty());
  REQUIRE(relays[1].Waiting(0).empty());
  while (worker->commits.empty()) {
    REQUIRE(relays[1].Waiting(0).empty());
    REQUIRE(worker->Step(1000) == 16);
  }
  while (worker->Step(1000) > 0) {
  }
  REQUIRE(worker->commits.size() == 2);
  for (RelayFixture& relay : relays) relay.ranks[1]->scheduler->prompts().Abandon();
  for (const RequestId hop : {HopId(1, 0), HopId(2, 0)}) worker->EndHandoff(hop);
}

TEST_CASE("prompts before a slice run beside it, the others when it waits") {
  RelayChainFixture chain({40, 60}, kPeer);
  SchedulerFixture& tail = chain.tail();
  while (chain.head().Step(1000) > 0) {
  }
  tail.Admit(SchedulerFixture::Request(8, 40));
  REQUIRE(tail.ChunkStep(10) == 10);  // nothing of the inflow has arrived
  chain.relay->Flow(0, 1);
  REQUIRE(tail.ChunkStep(10) == 0);  // 30 tokens are left, 20 of the slice
  REQUIRE(tail.Block(1000) == 20);
  tail.Admit(SchedulerFixture::Request(9, 5));
  REQUIRE(tail.ChunkStep(1000) == 5);
  REQUIRE(tail.tokens.back().request_id == 9);
  REQUIRE(tail.Block(1000) == 20);  // finishes the first layer, 14 are left
  REQUIRE(tail.Block(1000) == 20);
  REQUIRE(tail.Block(1000) == 0);  // waits
  REQUIRE(tail.ChunkStep(10) == 10);
  chain.relay->Flow(0);
  REQUIRE(tail.ChunkStep(10) == 0);
  while (tail.Step(1000) > 0) {
  }
  chain.relay->RequireFirstToken();
}

TEST_CASE("a slice that is overtaken too long goes before shorter prompts") {
  RelayChainFixture chain({40, 60}, kPeer);
  SchedulerFixture& tail = chain.tail();
  while (chain.head().Step(1000) > 0) {
  }
  chain.relay->Flow(0, 1);
  int overtaken = 0;
  for (RequestId id = 1000;; ++id) {
    tail.Admit(SchedulerFixture::Request(id, 8));
    const int n = tail.ChunkStep(8);
    if (n == 0) break;
    overtaken += n;
    REQUIRE(overtaken < 4 * (60 + 256));
  }
  REQUIRE(overtaken > 3 * (60 + 256));
}

TEST_CASE("what others are told is left shrinks layer by layer") {
  RelayChainFixture chain({40, 60}, kPeer);
  while (chain.head().Step(1000) > 0) {
  }
  REQUIRE(chain.head().scheduler->prompts().queue().queued().tokens == 0);
  REQUIRE(chain.tail().scheduler->prompts().queue().queued().tokens == 20);
  chain.relay->Flow(0, 1);
  while (chain.tail().Step(1000) > 0) {
  }
  REQUIRE(chain.tail().scheduler->prompts().queue().queued().tokens == 14);
}

TEST_CASE("a head that waits for the tail's pages tells the router of no want of room") {
  auto head = MakeWorker();
  RelayFixture relay(7, {12, 23}, {head.get(), head.get()}, kPeer);
  relay.Admit(0);
  head->Step(1000);
  head->NoRoom(HopId(7, 0), 5);
  head->Collect();
  REQUIRE(head->no_room == 0);
  head->scheduler->prompts().CancelAll();
  head->EndHandoff(HopId(7, 0), absl::CancelledError("cancelled"));
  REQUIRE(head->ends.at(7).reason == EndReason::kCancelled);
}

TEST_CASE("a slice's KV is found by later prompts at every rank, and never landed upon") {
  RelayChainFixture chain({12, 24}, 0);
  while (chain.head().Step(5) > 0) {
  }
  chain.relay->Flow(0);
  SchedulerFixture& tail = chain.tail();
  while (tail.Step(5) > 0) {
  }
  chain.relay->RequireFirstToken();
  tail.Admit(SchedulerFixture::Request(7, 25));
  tail.Step(1000);
  REQUIRE(tail.tokens.back().token == Expected(7, 25).tokens[0]);
  REQUIRE(tail.scheduler->prompts().pages().reused_tokens() == 24);
  // A head starts with the pages that it holds.
  SchedulerFixture& head = chain.head();
  const size_t n_blocks = head.blocks.size();
  PrefillRequest longer = SchedulerFixture::Request(7, 20, kNextRank);
  longer.epoch = 2;
  SetHead(&longer, SchedulerFixture::Id(55));
  head.Admit(longer);
  head.EndHandoff(HopId(7, 0), absl::CancelledError("cancelled"));
  head.Step(1000);
  head.Promise(55);
  while (head.Step(1000) > 0) {
  }
  REQUIRE(head.scheduler->prompts().pages().reused_tokens() == 12);
  head.EndHandoff(55);
  REQUIRE(head.ends.at(7).reused_tokens == 12);
  REQUIRE(head.blocks[n_blocks].to == 8);
  // A tail does not land its inflow in pages with other holders.
  PrefillRequest again = chain.relay->RequestOf(1);
  again.epoch = 2;
  tail.Admit(again);
  REQUIRE(tail.Step(1000) == 0);
  REQUIRE(tail.awaits.size() == 2);
  for (const int32_t page : tail.awaits[1].pages) {
    REQUIRE(tail.pool->is_held(page));
    const auto& first = tail.awaits[0].pages;
    REQUIRE(std::find(first.begin(), first.end(), page) == first.end());
  }
  tail.scheduler->prompts().CancelAll();
  chain.relay->FailInflow(1);
  REQUIRE(tail.pool->held() == 0);
}

TEST_CASE("ranks that make no sense are refused with the reason") {
  auto b = MakeWorker(With(4), 200, 20);
  const auto refusal = [&b](PrefillRequest request) {
    const RequestId id = request.request_id;
    b->Admit(std::move(request));
    b->Collect();
    REQUIRE(b->ends.at(id).reason == EndReason::kFailed);
    REQUIRE(b->pool->held() == 0);
    return b->ends.at(id).message;
  };
  const auto tail = [&b](RequestId id, int n, int slice) {
    return RelayFixture(id, {slice, n}, {b.get(), b.get()}, kPeer).RequestOf(1);
  };
  const auto head = [&b](RequestId id, int slice, Incarnation next) {
    PrefillRequest request = RelayFixture(id, {slice, 24}, {b.get(), b.get()}, kPeer).RequestOf(0);
    request.slices[0].outputs[0].peer.incarnation = next;
    return request;
  };
  REQUIRE(refusal(tail(1, 23, 10)) == "a slice that is tokens [10, 23) after token 0, pages of 4");
  REQUIRE(refusal(tail(2, 24, 24)).find("a slice that is tokens [24, 24)") == 0);
  REQUIRE(refusal(tail(3, 24, -4)).find("a slice that is tokens [-4, 24)") == 0);
  REQUIRE(refusal(head(4, 10, kNextRank)).find("a slice that is tokens [0, 10)") == 0);
  REQUIRE(refusal(head(5, 12, kSelf)).find("a slice up to token 12 for worker") == 0);
  REQUIRE(refusal(head(6, 12, 0)).find("a slice up to token 12 for worker") == 0);
  REQUIRE(refusal(tail(7, 33, 12)) ==
          "a slice of 21 tokens; this worker computes at most 20 (prefill.max_slice_tokens)");
  REQUIRE(refusal(head(8, 24, kNextRank)).find("a slice of 24 tokens") == 0);
  const RelayFixture pushing(9, {12, 24}, {b.get(), b.get()}, kPeer, true);
  const auto spoiled = [&pushing](RequestId id, int rank, auto spoil) {
    PrefillRequest request = pushing.RequestOf(rank);
    request.request_id = id;
    spoil(&request.slices[0].outputs.back());
    return request;
  };
  const std::string of_head = " on, of a slice that is tokens [0, 12)";
  REQUIRE(refusal(spoiled(9, 0, [](KvOutput* o) { o->ticket.n_pages = 2; })) ==
          "a handoff of 2 pages from 0" + of_head);
  REQUIRE(refusal(spoiled(10, 0, [](KvOutput* o) { o->first_page = 1; })) ==
          "a handoff of 3 pages from 1" + of_head);
  REQUIRE(refusal(spoiled(11, 0, [](KvOutput* o) { o->first_page = -1; })) ==
          "a handoff of 3 pages from -1" + of_head);
  REQUIRE(refusal(spoiled(12, 1, [](KvOutput* o) { ++o->first_page; })) ==
          "a handoff of 3 pages from 4 on, of a slice that is tokens [12, 24)");
  REQUIRE(refusal(spoiled(13, 1, [](KvOutput* o) {
            ++o->ticket.first_page;
          })).find("ticket of 6 KV pages") == 0);
  REQUIRE(refusal(spoiled(14, 1, [](KvOutput* o) { o->ticket.promise_pages = 0; })) ==
          "ticket of 6 KV pages, 0 promised; the prompt has 6");
  PrefillRequest aimless = pushing.RequestOf(0);
  aimless.request_id = 15;
  aimless.slices[0].outputs.clear();
  REQUIRE(refusal(aimless) == "a rank without a first token hands nothing over");
  PrefillRequest twice = pushing.RequestOf(0);
  twice.request_id = 16;
  twice.slices[0].outputs[1].ticket.id = twice.slices[0].outputs[0].ticket.id;
  REQUIRE(refusal(twice) == "a ticket is given twice");
  PrefillRequest forked = pushing.RequestOf(1);
  forked.request_id = 17;
  forked.slices[0].outputs.push_back(forked.slices[0].outputs[0]);
  REQUIRE(refusal(forked) == "a prompt with a first token is for one decode worker");
  PrefillRequest hasty = pushing.RequestOf(1);
  hasty.request_id = 18;
  hasty.pages_at_once = true;
  REQUIRE(refusal(hasty) == "a prompt with a first token waits for pages in its turn");
  PrefillRequest huge = pushing.RequestOf(0);
  huge.request_id = 19;
  huge.slices[0].outputs[0].ticket.n_pages = std::numeric_limits<int32_t>::max();
  REQUIRE(refusal(huge).find("a handoff of 2147483647 pages") == 0);
}

}  // namespace
}  // namespace baton
