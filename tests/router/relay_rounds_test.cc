// Relays in rounds at the router: the messages to each rank, the replacement of a lost rank, and
// what becomes of a late one.
#include <algorithm>
#include <optional>

#include "tests/router/relay_harness.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("in rounds each rank gets all its slices, and what it lacks comes around the ring") {
  const RelayPush push = GENERATE(RelayPush::kAll, RelayPush::kTail);
  Ring r(push);
  REQUIRE(r.requests.size() == 3);
  CHECK(r.router.View().relays_in_rounds == 1);
  const std::vector<Incarnation> ranks = {kThird, kHead, kTail};
  const PrefillRequest tail = r.requests.at(kTail);
  CHECK(tail.tokens.size() == 176);
  CHECK_FALSE(tail.is_head);
  CHECK(tail.ticket.kv_pages == 11);
  // Checks the slices one by one in the order of the prompt.
  std::vector<int32_t> ends;
  TicketId before{};
  for (size_t slice = 0; slice < 6; ++slice) {
    const PrefillRequest& request = r.requests.at(ranks[slice % 3]);
    REQUIRE(request.earlier.size() == 1);
    CHECK(request.is_head == (slice % 3 < 2));
    const RelayRound round = slice < 3
                                 ? request.earlier[0]
                                 : RelayRound{.tokens = static_cast<int32_t>(request.tokens.size()),
                                              .inflow = request.inflow,
                                              .ticket = request.ticket,
                                              .sink = request.sink,
                                              .push = request.push};
    const int32_t begin = ends.empty() ? 0 : ends.back();
    CHECK(round.tokens > begin);
    CHECK(round.tokens - begin <= 32);
    CHECK(round.inflow == Inflow{.ticket_id = before, .tokens = begin});
    ends.push_back(round.tokens);
    CHECK(VerifyTicket(TestKey(), round.ticket));
    if (slice == 5) break;
    before = round.ticket.id;
    const Incarnation next = ranks[(slice + 1) % 3];
    CHECK(round.sink == Announce(next, Role::kPrefill).transfer);
    CHECK(round.ticket.sink == next);
    CHECK(round.ticket.promise_pages == 0);
    CHECK(round.ticket.kv_pages == (round.tokens - (slice < 2 ? 0 : ends[slice - 2])) / 16);
    if (push == RelayPush::kTail) {
      CHECK(round.push == Push{});
      continue;
    }
    CHECK(VerifyTicket(TestKey(), round.push.ticket));
    CHECK(round.push.ticket.promise == tail.ticket.id);
    CHECK(round.push.ticket.first_page == begin / 16);
    CHECK(round.push.ticket.n_pages == (round.tokens - begin) / 16);
    CHECK(round.push.sink == Announce(kDecode1, Role::kDecode).transfer);
  }
  CHECK(tail.ticket.first_page == (push == RelayPush::kAll ? ends[4] / 16 : 0));

  for (const Incarnation head : {kThird, kHead}) REQUIRE(r.Report(head, {Ended(r.id, true)}).ok());
  REQUIRE(r.Report(kTail, {Token(r.id, 176, 7), Ended(r.id, true)}).ok());
  REQUIRE(r.Report(kDecode1, {Token(r.id, 177, 8), Token(r.id, 178, 9), Ended(r.id, false)}).ok());
  const Timeline& timeline = r.End(r.id).timeline;
  CHECK(timeline.rounds == 2);
  CHECK(timeline.slices == std::vector<int32_t>{ends[0] + ends[3] - ends[2],
                                                ends[1] - ends[0] + ends[4] - ends[3],
                                                ends[2] - ends[1] + 176 - ends[4]});
  CheckIdle(r);
}

// Returns the ends of a rank's slices, the last one included.
std::vector<size_t> Ends(const PrefillRequest& request) {
  std::vector<size_t> ends;
  for (const RelayRound& round : request.earlier) ends.push_back(size_t(round.tokens));
  ends.push_back(request.tokens.size());
  return ends;
}

TEST_CASE("a lost rank of a relay in rounds is replaced: all its slices, the others keep theirs") {
  const auto [lost, other] =
      GENERATE(table<Incarnation, Incarnation>({{kTail, 10}, {kHead, 14}, {kThird, 20}}));
  Ring r(GENERATE(RelayPush::kAll, RelayPush::kTail));
  r.JoinWith(other, Role::kPrefill,
             32);  // enough for each slice, not for all of a rank
  r.Lose(lost);
  const std::map<Incarnation, PrefillRequest> next = r.Requests();
  REQUIRE(next.size() == 3);
  REQUIRE(next.contains(other));
  for (const auto& [worker, request] : next) {
    const PrefillRequest& before = r.requests.at(worker == other ? lost : worker);
    CHECK(request.epoch == 2);
    CHECK(request.is_head == before.is_head);
    CHECK(Ends(request) == Ends(before));
    CHECK(request.inflow.tokens == before.inflow.tokens);
    CHECK(request.inflow.ticket_id != before.inflow.ticket_id);
    for (const RelayRound& round : request.earlier) {
      CHECK(round.ticket.epoch == 2);
      CHECK(round.sink.incarnation != lost);
      CHECK(VerifyTicket(TestKey(), round.ticket));
    }
  }
  CHECK(r.router.View().ranks_replaced == 1);
  CHECK(r.router.View().replaced_in_rounds == 1);
  REQUIRE(r.Report(lost == kTail ? other : kTail,
                   {Token(r.id, 176, 7, 2), Ended(r.id, true, EndReason::kLength, 2)})
              .ok());
  REQUIRE(r.Report(kDecode1, {Token(r.id, 177, 8, 2), Token(r.id, 178, 9, 2),
                              Ended(r.id, false, EndReason::kLength, 2)})
              .ok());
  CHECK(r.tokens[r.id] == std::vector<int32_t>{7, 8, 9});
}

TEST_CASE("who takes too short slices for a relay in rounds does not stand in") {
  Ring r(RelayPush::kAll);
  r.JoinWith(14, Role::kPrefill, 16);
  REQUIRE(r.Report(kThird, {WorkerLoad{.draining = true}}).ok());  // nor does the rank before it
  r.Lose(kHead);
  CHECK(r.router.View().ranks_replaced == 0);
  const auto next = r.Sent<PrefillRequest>();
  REQUIRE(next.size() == 1);
  CHECK(next[0].second.earlier.empty());
  CHECK(next[0].second.inflow == Inflow{});
  CHECK(next[0].second.tokens.size() == 176);
  r.Cancel(r.id);
}

TEST_CASE("a lost decode worker of a relay in rounds is replaced: the ranks keep what they have") {
  Ring r(GENERATE(RelayPush::kAll, RelayPush::kTail));
  r.Join(kDecode2, Role::kDecode);
  r.Lose(kDecode1);
  CHECK(r.LastDecodeWorker() == kDecode2);
  const std::map<Incarnation, PrefillRequest> next = r.Requests();
  REQUIRE(next.size() == 3);
  for (const auto& [worker, request] : next) {
    CHECK(Ends(request) == Ends(r.requests.at(worker)));
    const bool pushes = r.requests.at(worker).earlier[0].push != Push{};
    for (const RelayRound& round : request.earlier)
      CHECK(round.push.sink.incarnation == (pushes ? kDecode2 : 0));
  }
  CHECK(next.at(kTail).sink.incarnation == kDecode2);
  CHECK(r.router.View().sinks_replaced == 1);
  r.Cancel(r.id);
}

TEST_CASE("a broken handoff of a ring: the end that two of them have in common is replaced") {
  Ring r(RelayPush::kAll);
  r.JoinWith(30, Role::kPrefill, 32);
  const auto breaks = [&](Incarnation worker, PartFault fault) {
    REQUIRE(r.Report(worker, {Failed(r.id, true, fault)}).ok());
  };
  Incarnation lost = 0;
  SECTION("the first rank, to which the tail hands over") {
    lost = kThird;
    breaks(kTail, PartFault::kRing);
    CHECK(r.sent.empty());
    breaks(kHead, PartFault::kInflow);
  }
  SECTION("the tail, of which the first rank has its inflow") {
    lost = kTail;
    breaks(kThird, PartFault::kInflow);
    breaks(kHead, PartFault::kHandoff);
  }
  SECTION("of one the receiver") {
    lost = kThird;
    breaks(kTail, PartFault::kRing);
    r.Advance(RouterOptions().blame_wait);
  }
  const std::map<Incarnation, PrefillRequest> next = r.Requests();
  CHECK(next.size() == 3);
  CHECK(next.contains(30));
  CHECK_FALSE(next.contains(lost));
  CHECK(r.router.View().ranks_replaced == 1);
  r.Cancel(r.id);
}

TEST_CASE("a late relay in rounds goes on at one worker, from the first slice") {
  Ring r(RelayPush::kAll);
  r.AdvanceWith(absl::Seconds(2), {kDecode1, kTail, kHead, kThird});
  CHECK(r.router.View().failovers[static_cast<size_t>(FailoverCause::kLate)] == 1);
  REQUIRE(r.Sent<PrefillRequest>().size() == 1);
  CHECK(r.LastPrefillWorker() == kThird);
  CHECK(r.LastPrefill().earlier.empty());
  CHECK(r.LastPrefill().tokens.size() == 176);
  r.Cancel(r.id);
}

}  // namespace
}  // namespace baton
