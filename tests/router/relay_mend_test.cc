// Relays that lose a worker and continue with another in its place: the choice of the worker, the
// order of pages, the messages to each rank, and the blame for a broken handoff.
#include <algorithm>

#include "tests/router/relay_harness.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a lost rank is replaced: the same slices, the others keep theirs") {
  const auto [lost, other] = GENERATE(
      table<Incarnation, Incarnation>({{kTail, 10}, {kThird, 20}, {kTail, 5}, {kThird, 14}}));
  LongRelayHarness r;
  r.Join(other, Role::kPrefill);
  r.Lose(lost);
  CHECK(r.Cancelled() == Incarnations{kDecode1});
  const Incarnations ranks =
      lost == kTail ? Incarnations{other, kHead, kThird} : Incarnations{kTail, kHead, other};
  REQUIRE(r.Ranks() == ranks);
  const auto requests = r.Sent<PrefillRequest>();
  const PrefillRequest tail = requests[0].second, second = requests[1].second,
                       first = requests[2].second;
  CHECK(tail.tokens.size() == 96);
  CHECK(LastSlice(tail).inflow == TicketOf(second).id);
  CHECK(LastSlice(tail).begin == 64);
  CHECK(second.tokens.size() == 64);
  CHECK(LastSlice(second).inflow == TicketOf(first).id);
  CHECK(LastSlice(second).begin == 32);
  CHECK(first.tokens.size() == 32);
  for (const PrefillRequest& request : {tail, second, first}) {
    CHECK(request.epoch == 2);
    CHECK(TicketOf(request).epoch == 2);
    CHECK(VerifyTicket(TestKey(), TicketOf(request)));
  }
  CHECK(r.Sent<DecodeRequest>().size() == 1);
  CHECK(r.router.View().ranks_replaced == 1);
  CHECK(r.router.View().failovers[static_cast<size_t>(FailoverCause::kWorkerLost)] == 1);
  SECTION("to its end") {
    // Reports of the survivors on the first attempt are stale.
    REQUIRE(r.Report(kHead, {r.Broken(r.id, kHead, kTail)}).ok());
    FinishSecondAttempt(&r, r.id, 96, ranks[0]);
    CHECK(r.End(r.id).timeline.attempts == 2);
  }
  SECTION("once: the next time it is dispatched at one worker") {
    r.Join(other + 1, Role::kPrefill);
    r.sent.clear();
    r.Lose(other);
    CHECK(r.Sent<PrefillRequest>().size() == 1);
    CHECK(r.LastPrefill().epoch == 3);
    CHECK(LastSlice(r.LastPrefill()).inflow == TicketId{});
    CHECK(r.Cancelled().size() == 3);
    CHECK(r.router.View().ranks_replaced == 1);
    r.Cancel(r.id);
  }
}

TEST_CASE("a lost rank is replaced in any order, but not by who takes nothing or has a part") {
  const auto alone = [](Incarnation lost, auto prepare) {
    LongRelayHarness r;
    prepare(r);
    r.Lose(lost);
    const bool is_alone = r.Ranks().size() == 1;
    CHECK(r.router.View().ranks_replaced == (is_alone ? 0u : 1u));
    r.Cancel(r.id);
    return is_alone;
  };
  const auto joins = [](Incarnation worker, Role role = Role::kPrefill) {
    return [=](LongRelayHarness& r) { r.Join(worker, role); };
  };
  // A draining worker cannot continue a slice.
  const auto drains = [](LongRelayHarness& r, Incarnation worker) {
    REQUIRE(r.Report(worker, {WorkerLoad{.draining = true}}).ok());
  };
  for (const Incarnation lost : {kTail, kHead, kThird})
    for (const Incarnation other : {10, 30}) CHECK_FALSE(alone(lost, joins(other)));
  CHECK(alone(kThird, [&](LongRelayHarness& r) { drains(r, kHead); }));
  CHECK(alone(kThird, [&](LongRelayHarness& r) {
    r.Join(30, Role::kDecode);
    drains(r, kHead);
  }));
  CHECK(alone(kThird, [&](LongRelayHarness& r) {
    r.Join(30, Role::kPrefill);
    drains(r, 30);
    drains(r, kHead);
  }));
  CHECK(alone(kThird, [&](LongRelayHarness& r) {
    WorkerAnnounce small = Announce(30, Role::kPrefill);
    small.max_slice_tokens = 31;
    REQUIRE(r.Report(30, {small}).ok());
    drains(r, kHead);
  }));
}

// Slices of 32 tokens: kThird's, kHead's, kTail's.
TEST_CASE("where no other worker is there, the rank before the lost one computes its slices too") {
  const auto [lost, survivor] =
      GENERATE(table<Incarnation, Incarnation>({{kTail, kHead}, {kHead, kThird}, {kThird, kHead}}));
  LongRelayHarness r;
  r.Lose(lost);
  CHECK(r.Cancelled() == Incarnations{kDecode1});
  CHECK(r.router.View().ranks_replaced == 1);
  const Incarnations ranks = lost == kTail   ? Incarnations{kHead, kThird}
                             : lost == kHead ? Incarnations{kTail, kThird}
                                             : Incarnations{kTail, kHead};
  REQUIRE(r.Ranks() == ranks);
  const auto requests = r.Sent<PrefillRequest>();
  const PrefillRequest tail = requests[0].second, head = requests[1].second;
  CHECK(tail.tokens.size() == 96);
  CHECK(head.tokens.size() == (lost == kTail ? 32 : 64));
  CHECK(LastSlice(head).inflow == TicketId{});
  CHECK(TicketOf(head).sink == ranks[0]);
  CHECK(TicketOf(head).kv_pages == int(head.tokens.size()) / 16);
  const PrefillRequest& both = ranks[0] == survivor ? tail : head;
  const PrefillRequest& other = ranks[0] == survivor ? head : tail;
  CHECK(LastSlice(both).inflow == TicketId{});
  CHECK(other.slices.size() == 1);
  REQUIRE(both.slices.size() == 2);
  const SliceSpec& slice = both.slices[0];
  CHECK(HopOf(slice) == KvOutput{});
  CHECK(slice.end == (lost == kTail ? 64 : 32));
  const TicketId from_head = TicketOf(head).id;
  CHECK(slice.inflow == (lost == kTail ? from_head : TicketId{}));
  CHECK(LastSlice(tail).inflow == (lost == kTail ? TicketId{} : from_head));
  CHECK(LastSlice(tail).begin == (lost == kTail ? 64 : int(head.tokens.size())));
  CHECK(PushOf(slice).ticket.n_pages == 2);
  CHECK(PushOf(slice).ticket.first_page == (lost == kTail ? 2 : 0));
  SECTION("to its end") {
    REQUIRE(r.Report(ranks[1], {Ended(r.id, true, EndReason::kLength, 2)}).ok());
    FinishSecondAttempt(&r, r.id, 96, ranks[0]);
    const std::vector<int32_t> slices = lost == kTail ? std::vector{32, 64} : std::vector{64, 32};
    CHECK(r.End(r.id).timeline.slices == slices);
  }
  SECTION("once: the next time one worker computes all of it") {
    r.sent.clear();
    r.Lose(survivor);
    CHECK(r.Sent<PrefillRequest>().size() == 1);
    CHECK(r.LastPrefill().slices.size() == 1);
    CHECK(r.router.View().ranks_replaced == 1);
    r.Cancel(r.id);
  }
}

TEST_CASE("the one rank that is left of two computes the other's slice besides its own") {
  const auto [lost, survivor] =
      GENERATE(table<Incarnation, Incarnation>({{kTail, kHead}, {kHead, kTail}}));
  RelayHarness r;
  const RequestId id = r.Submit(96, 3);
  REQUIRE(r.LastIsRelay());
  const int32_t first = int32_t(r.LastPrefill().tokens.size());
  r.sent.clear();
  r.Lose(lost);
  REQUIRE(r.Sent<PrefillRequest>().size() == 1);
  const auto [worker, request] = r.Sent<PrefillRequest>()[0];
  CHECK(worker == survivor);
  CHECK(request.wants_first_token);
  CHECK(request.tokens.size() == 96);
  CHECK(LastSlice(request).inflow == TicketId{});
  REQUIRE(request.slices.size() == 2);
  CHECK(request.slices[0].end == first);
  CHECK(HopOf(request.slices[0]) == KvOutput{});
  CHECK(request.slices[0].inflow == TicketId{});
  CHECK(r.router.View().ranks_replaced == 1);
  FinishSecondAttempt(&r, id, 96, survivor);
  CHECK(r.End(id).timeline.prefill_heads == "");
  CHECK(r.End(id).timeline.slices == std::vector<int32_t>{96});
}

TEST_CASE("who stands out of the order of pages in a mended relay does not wait for them") {
  const auto at_once = [](Incarnation lost, Incarnation other) {
    LongRelayHarness r;
    r.Join(other, Role::kPrefill);
    r.Lose(lost);
    Incarnations workers;
    for (const auto& [worker, request] : r.Sent<PrefillRequest>())
      if (request.pages_at_once) workers.push_back(worker);
    r.Cancel(r.id);
    return workers;
  };
  CHECK(at_once(kTail, 10) == Incarnations{});
  CHECK(at_once(kThird, 30) == Incarnations{});
  CHECK(at_once(kTail, 30) == Incarnations{kHead, kThird});
  CHECK(at_once(kHead, 30) == Incarnations{kThird});
  CHECK(at_once(kHead, 10) == Incarnations{10});
  CHECK(at_once(kThird, 10) == Incarnations{10});
  LongRelayHarness r;
  for (const auto& [worker, request] : r.Sent<PrefillRequest>()) CHECK_FALSE(request.pages_at_once);
}

TEST_CASE("a lost decode worker of a relay is replaced: every rank keeps its slice") {
  const Incarnation other =
      GENERATE(Incarnation{kDecode2 + 0}, Incarnation{40});  // above prefill workers
  LongRelayHarness r;
  r.Join(other, Role::kDecode);
  r.Lose(kDecode1);
  CHECK(r.Cancelled().empty());
  CHECK(r.Ranks() == Incarnations{kTail, kHead, kThird});
  CHECK(r.LastDecodeWorker() == other);
  for (const auto& [worker, request] : r.Sent<PrefillRequest>()) {
    CHECK(request.epoch == 2);
    INFO(worker);
    CHECK(request.pages_at_once == (other == 40 && !request.wants_first_token));
    CHECK(PushOf(LastSlice(request)).peer.incarnation == other);
  }
  CHECK(r.router.View().sinks_replaced == 1);
  CHECK(r.router.View().ranks_replaced == 0);
  r.Cancel(r.id);
}

TEST_CASE("a broken handoff of a relay: whoever is at fault by all that was said is replaced") {
  LongRelayHarness r;
  r.Join(30, Role::kPrefill);
  r.Join(kDecode2, Role::kDecode);
  const auto fails = [&](Incarnation worker, PartFault fault) {
    REQUIRE(r.Report(worker, {Failed(r.id, true, fault)}).ok());
  };
  const auto breaks = [&](Incarnation worker, Incarnation from, Incarnation to) {
    REQUIRE(r.Report(worker, {r.Broken(r.id, from, to)}).ok());
  };
  const auto lacks = [&](Incarnation worker) {
    const Incarnations ranks = r.Ranks();
    return std::find(ranks.begin(), ranks.end(), worker) == ranks.end();
  };
  SECTION("the one that two handoffs have in common, at once") {
    breaks(kThird, kThird, kHead);
    CHECK(r.Ranks().empty());
    breaks(kTail, kHead, kTail);
    CHECK(r.Ranks().size() == 3);
    CHECK(lacks(kHead));
    CHECK(r.Cancelled() == Incarnations{kDecode1, kHead});
  }
  SECTION("of one handoff the receiver, in a while") {
    breaks(kThird, kThird, kHead);
    breaks(kHead, kThird, kHead);  // of the same handoff
    CHECK(r.Ranks().empty());
    r.Advance(RouterOptions().blame_wait);
    CHECK(lacks(kHead));
    CHECK(r.Cancelled() == Incarnations{kDecode1});  // the head's own part has ended
  }
  SECTION("who was lost meanwhile") {
    breaks(kTail, kHead, kTail);
    r.Lose(kHead);
    CHECK(lacks(kHead));
    CHECK(r.Ranks().size() == 3);
  }
  SECTION("the decode worker") {
    breaks(kThird, kThird, kDecode1);
    breaks(kTail, kTail, kDecode1);
    CHECK(r.LastDecodeWorker() == kDecode2);
    CHECK(r.Ranks() == Incarnations{kTail, kHead, kThird});
    CHECK(r.router.View().sinks_replaced == 1);
    r.Cancel(r.id);
    return;
  }
  SECTION("a rank that drains, or failed by itself") {
    fails(kHead, GENERATE(PartFault::kDraining, PartFault::kOwn));
    CHECK(lacks(kHead));
    CHECK(r.Ranks().size() == 3);
  }
  SECTION("no rank is blamed for handoffs that were given up: one worker goes on") {
    fails(kHead, PartFault::kPeer);
    CHECK(r.Ranks().empty());
    r.Advance(RouterOptions().blame_wait);
    CHECK(r.Ranks().size() == 1);
    CHECK(r.router.View().ranks_replaced == 0);
    r.Cancel(r.id);
    return;
  }
  CHECK(r.router.View().ranks_replaced == 1);
  r.Cancel(r.id);
}

TEST_CASE("tokens that later attempts computed are counted by why there was an attempt before") {
  LongRelayHarness r;
  r.Join(30, Role::kPrefill);
  r.Lose(kHead);
  const Incarnation stand_in = r.Ranks().at(1);
  PartEnded ended = Ended(r.id, true, EndReason::kLength, 2);
  ended.recomputed_tokens = 32;
  REQUIRE(r.Report(stand_in, {ended}).ok());
  CHECK(r.router.View().recomputed_tokens[static_cast<size_t>(FailoverCause::kWorkerLost)] == 32);
  r.Cancel(r.id);
}

}  // namespace
}  // namespace baton
