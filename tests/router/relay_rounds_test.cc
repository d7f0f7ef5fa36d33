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
  CHECK(tail.wants_first_token);
  CHECK(TicketOf(tail).kv_pages == 11);
  // Checks the slices one by one in the order of the prompt.
  std::vector<int32_t> ends;
  TicketId before{};
  for (size_t slice = 0; slice < 6; ++slice) {
    const PrefillRequest& request = r.requests.at(ranks[slice % 3]);
    REQUIRE(request.slices.size() == 2);
    CHECK(request.wants_first_token == (slice % 3 == 2));
    const SliceSpec& spec = request.slices[slice / 3];
    CHECK(spec.begin == (ends.empty() ? 0 : ends.back()));
    CHECK(spec.end > spec.begin);
    CHECK(spec.end - spec.begin <= 32);
    CHECK(spec.inflow == before);
    ends.push_back(spec.end);
    for (const KvOutput& output : spec.outputs) CHECK(VerifyTicket(TestKey(), output.ticket));
    if (slice == 5) break;
    const KvOutput hop = HopOf(spec), pushed = PushOf(spec);
    before = hop.ticket.id;
    const Incarnation next = ranks[(slice + 1) % 3];
    CHECK(hop.peer == Announce(next, Role::kPrefill).transfer);
    CHECK(hop.ticket.sink == next);
    CHECK(hop.ticket.promise == hop.ticket.id);
    CHECK(hop.ticket.kv_pages == (spec.end - (slice < 2 ? 0 : ends[slice - 2])) / 16);
    CHECK(hop.first_page + hop.ticket.n_pages == spec.end / 16);
    if (push == RelayPush::kTail) {
      CHECK(pushed == KvOutput{});
      continue;
    }
    CHECK(pushed.ticket.promise == TicketOf(tail).id);
    CHECK(pushed.ticket.first_page == spec.begin / 16);
    CHECK(pushed.first_page == spec.begin / 16);
    CHECK(pushed.ticket.n_pages == (spec.end - spec.begin) / 16);
    CHECK(pushed.peer == Announce(kDecode1, Role::kDecode).transfer);
  }
  CHECK(TicketOf(tail).first_page == (push == RelayPush::kAll ? ends[4] / 16 : 0));

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
std::vector<int32_t> Ends(const PrefillRequest& request) {
  std::vector<int32_t> ends;
  for (const SliceSpec& slice : request.slices) ends.push_back(slice.end);
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
    CHECK(request.wants_first_token == before.wants_first_token);
    CHECK(Ends(request) == Ends(before));
    CHECK(InflowTokens(request) == InflowTokens(before));
    CHECK(LastSlice(request).inflow != LastSlice(before).inflow);
    for (const SliceSpec& slice : request.slices)
      for (const KvOutput& output : slice.outputs) {
        CHECK(output.ticket.epoch == 2);
        CHECK(output.peer.incarnation != lost);
        CHECK(VerifyTicket(TestKey(), output.ticket));
      }
  }
  CHECK(r.router.View().ranks_replaced == 1);
  CHECK(r.router.View().replaced_in_rounds == 1);
  FinishSecondAttempt(&r, r.id, 176, lost == kTail ? other : kTail);
}

TEST_CASE("who takes too short slices for a relay in rounds does not stand in") {
  Ring r(RelayPush::kAll);
  r.JoinWith(14, Role::kPrefill, 16);
  REQUIRE(r.Report(kThird, {WorkerLoad{.draining = true}}).ok());  // nor does the rank before it
  r.Lose(kHead);
  CHECK(r.router.View().ranks_replaced == 0);
  const auto next = r.Sent<PrefillRequest>();
  REQUIRE(next.size() == 1);
  CHECK(next[0].second.slices.size() == 1);
  CHECK(LastSlice(next[0].second).inflow == TicketId{});
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
    const bool pushes = PushOf(r.requests.at(worker).slices[0]) != KvOutput{};
    CHECK(PushOf(request.slices[0]).peer.incarnation == (pushes ? kDecode2 : 0));
  }
  CHECK(MainOf(next.at(kTail)).peer.incarnation == kDecode2);
  CHECK(r.router.View().sinks_replaced == 1);
  r.Cancel(r.id);
}

TEST_CASE("a broken handoff of a ring: the end that two of them have in common is replaced") {
  Ring r(RelayPush::kAll);
  r.JoinWith(30, Role::kPrefill, 32);
  const auto breaks = [&](Incarnation worker, Incarnation from, Incarnation to) {
    REQUIRE(r.Report(worker, {r.Broken(r.id, from, to)}).ok());
  };
  Incarnation lost = 0;
  SECTION("the first rank, to which the tail hands over") {
    lost = kThird;
    breaks(kTail, kTail, kThird);
    CHECK(r.sent.empty());
    breaks(kHead, kThird, kHead);
  }
  SECTION("the tail, of which the first rank has its inflow") {
    lost = kTail;
    breaks(kThird, kTail, kThird);
    breaks(kHead, kHead, kTail);
  }
  SECTION("of one the receiver") {
    lost = kThird;
    breaks(kTail, kTail, kThird);
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
  CHECK(r.LastPrefill().slices.size() == 1);
  CHECK(r.LastPrefill().tokens.size() == 176);
  r.Cancel(r.id);
}

}  // namespace
}  // namespace baton
