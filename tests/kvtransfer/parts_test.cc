// Handoffs in parts: any order of OPENs, room, cells and COMMITs works; parts that do not fit, or
// of other attempts, fail with a reason; the number of waiting handoffs is bounded.
#include <numeric>

#include "tests/kvtransfer/handoff_rigs.h"
#include "tests/kvtransfer/parts_rig.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using absl::StatusCode;

template <typename E>
int Count(const CoreNode& node) {
  int n = 0;
  for (const TransferEvent& event : node.events) n += std::holds_alternative<E>(event);
  return n;
}

TEST_CASE("parts: OPENs and room in any order, every cell lands in its page") {
  enum { kRoom = 3 };
  std::vector<size_t> order = {0, 1, 2, kRoom};  // three OPENs and the pages
  do {
    PartsRig rig(1);
    bool room = false, main_open = false;
    for (const size_t n : order) {
      if (n == kRoom) {
        rig.Lend();
        room = true;
      } else {
        rig.OpenSendCommit(n);
        main_open |= n == PartsRig::kTail;
      }
      rig.RunUntilQuiet();
      if (n == kRoom) continue;
      CHECK(Count<HandoffNoRoom>(*rig.sources[n].node) == (room && main_open ? 0 : 1));
    }
    REQUIRE(rig.arrived);
    rig.RunUntilIdle(1'000'000);  // COMMITTED
    for (const size_t n : {0, 1, 2}) {
      REQUIRE(rig.Ended(n)->ok());
      CHECK(Count<HandoffPromised>(*rig.sources[n].node) == 1);
    }
    CHECK(rig.sink.core->counters().bytes_received == uint64_t(PartsRig::kKvBytes));
    CHECK(rig.sink.core->stock().promises() == 1);
    rig.RequireOver();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("parts: the handoff has arrived when the last of main and parts is complete") {
  std::vector<size_t> order = {0, 1, 2};
  do {
    PartsRig rig(2);
    rig.Lend();
    for (const size_t n : order) rig.Open(n);
    for (const size_t n : order) rig.SendAll(n);
    rig.RunUntilQuiet();
    CHECK_FALSE(rig.arrived);  // without COMMITs
    for (const size_t n : order) {
      CHECK_FALSE(rig.arrived);
      rig.Commit(n);
      rig.RunUntilQuiet();
      CHECK(rig.Ended(n).has_value() == (n != PartsRig::kTail || n == order.back()));
    }
    CHECK(rig.arrived);
    rig.RunUntilIdle(1'000'000);
    rig.RequireOver();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("parts: a tail waits for a slow head as long as that gets on, and no longer") {
  NodeOptions options = PartsRig::SinkOptions();
  options.idle_timeout_ms = 30'000;
  PartsRig rig(3, options);
  rig.Lend();
  rig.OpenSendCommit(0);
  rig.OpenSendCommit(1);
  rig.Open(2);
  const auto pass = [&rig](int64_t us) { rig.RunUntilIdle(us); };
  const auto send = [&rig](int32_t plane) {
    rig.sources[2].node->core->Handle(
        SendCells{.ticket_id = rig.sources[2].ticket.id, .plane = plane, .pages = {3}},
        rig.cluster.now_us);
  };
  pass(25'000'000);  // longer than a source's limit for any acknowledgement
  CHECK_FALSE(rig.Ended(PartsRig::kTail).has_value());
  send(0);
  pass(25'000'000);
  send(1);
  pass(25'000'000);
  CHECK_FALSE(rig.over());
  if (GENERATE(true, false)) {
    send(2);
    rig.Commit(2);
    pass(1'000'000);
    CHECK(rig.arrived);
  } else {
    pass(10'000'000);
    REQUIRE(rig.aborted.has_value());
    CHECK(rig.aborted->code() == StatusCode::kDeadlineExceeded);
    CHECK(rig.Ended(0)->code() == StatusCode::kDeadlineExceeded);
    CHECK(rig.Ended(2)->code() == StatusCode::kDeadlineExceeded);
    CHECK(rig.Ended(1)->ok());  // its cells had arrived
  }
  rig.RequireOver();
}

TEST_CASE("parts: one whose main handoff never comes ends at room_timeout, and so does that one") {
  NodeOptions options = PartsRig::SinkOptions();
  options.room_timeout_ms = 10'000;
  PartsRig rig(4, options);
  rig.Lend();
  rig.OpenSendCommit(1);
  rig.OpenSendCommit(2);
  const int64_t start_us = rig.cluster.now_us;
  rig.RunUntilIdle(60'000'000);
  CHECK(rig.cluster.now_us - start_us < 11'000'000);
  for (const size_t n : {1, 2}) CHECK(rig.Ended(n)->code() == StatusCode::kResourceExhausted);
  rig.OpenSendCommit(0);
  rig.RunUntilIdle(1'000'000);
  CHECK(rig.Ended(0)->code() == StatusCode::kResourceExhausted);
  CHECK_FALSE(rig.over());
}

TEST_CASE("parts: a cancel by either end reaches all of them, however early") {
  const int who = GENERATE(0, 1, 2, 3);  // a source, or the sink
  const int opened = GENERATE(0, 1, 2, 3);
  PartsRig rig(5);
  rig.Lend();
  for (int n = 0; n < opened; ++n) {
    rig.Open(size_t(n));
    rig.RunUntilQuiet();
  }
  const size_t by = who == 3 ? PartsRig::kTail : size_t(who);
  rig.Cancel(who == 3 ? rig.sink : *rig.sources[by].node, rig.sources[by].ticket);
  rig.RunUntilQuiet();
  const bool heard = who == 3 || who < opened;
  for (int n = 0; n < opened; ++n) {
    if (!heard) continue;
    CHECK(rig.Ended(size_t(n))->code() == StatusCode::kCancelled);
  }
  for (size_t n = size_t(opened); n < 3; ++n) {
    rig.Open(n);
    rig.RunUntilQuiet();
    if (heard) CHECK(rig.Ended(n)->code() == StatusCode::kCancelled);
  }
  if (!heard) rig.Cancel(rig.sink, rig.sources[0].ticket);
  rig.RunUntilIdle(100'000);
  CHECK_FALSE(rig.arrived);
  for (const auto& node : rig.cluster.nodes) CHECK_FALSE(node->core->busy());
  CHECK(rig.sink.owned.size() + size_t(rig.sink.core->stock().in_pool()) == 16);
}

TEST_CASE("parts: what does not fit into the main handoff fails with it") {
  const Ticket main = MakeMain(1, 2, 6, 8, 4);
  Ticket other_request = MakePart(main, 9, 0, 1);
  ++other_request.request_id;
  SignTicket(kTestKey, other_request);
  const auto part = GENERATE_COPY(MakePart(main, 9, 2, 2),  // page 2 belongs to the first head
                                  MakePart(main, 9, 3, 2),  // page 4 belongs to the tail
                                  MakePart(main, 9, 1 << 30, 1), other_request);
  const bool part_first = GENERATE(true, false);
  PartsRig rig(6);
  rig.Lend();
  rig.Open(1);
  rig.sources[2].ticket = part;
  if (part_first) rig.Open(2);
  rig.RunUntilQuiet();
  rig.Open(0);
  rig.RunUntilQuiet();
  if (!part_first) rig.Open(2);
  rig.RunUntilQuiet();
  for (const size_t n : {0, 1, 2}) CHECK(rig.Ended(n)->code() == StatusCode::kInvalidArgument);
  REQUIRE(rig.aborted.has_value());
  rig.RequireOver();
}

TEST_CASE("parts: tickets whose parts make no sense are refused") {
  CorePair pair(7);
  const auto end_of = [&pair](Ticket ticket) {
    SignTicket(kTestKey, ticket);
    pair.source.events.clear();
    pair.Open(ticket);
    pair.cluster.RunUntilQuiet();
    return CoreCluster::Find<HandoffEnded>(pair.source)->status.code();
  };
  const Ticket main = MakeMain(1, 2, 6, 8, 4);
  Ticket ticket = MakePart(main, 2, 0, 0);  // no pages
  CHECK(end_of(ticket) == StatusCode::kInvalidArgument);
  ticket = MakePart(main, 3, -1, 1);
  CHECK(end_of(ticket) == StatusCode::kInvalidArgument);
  ticket = MakePart(main, 4, 0, 1);
  ticket.promise_pages = 1;
  CHECK(end_of(ticket) == StatusCode::kInvalidArgument);
  ticket = MakePart(main, 5, 0, 1);
  ticket.part_of = ticket.id;
  CHECK(end_of(ticket) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeMain(6, 2, 6, 8, 7)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeMain(7, 2, 6, 8, -1)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeMain(8, 2, 6, 0, 1)) == StatusCode::kInvalidArgument);  // an inflow has no parts
  ticket = MakePart(main, 9, 0, 1);
  ticket.part_of.low ^= 1;  // differs from the signed ticket
  pair.source.events.clear();
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source)->status.code() ==
        StatusCode::kPermissionDenied);
}

TEST_CASE("parts: of several attempts the latest lives, whichever of its tickets comes first") {
  PartsRig rig(8);
  rig.Lend();
  const bool main_open = GENERATE(true, false), part_open = GENERATE(true, false);
  const bool later_is_part = GENERATE(true, false);
  if (main_open) rig.Open(0);
  if (part_open) rig.Open(1);
  rig.RunUntilQuiet();
  Ticket main = MakeMain(1, 2, 6, 8, 4, 2);
  const Ticket later = later_is_part ? MakePart(main, 7, 3, 1) : main;
  CoreNode& other = rig.AddSource(9);
  other.core->Handle(OpenHandoff{later, 2, rig.sink.link->address()}, rig.cluster.now_us);
  rig.RunUntilQuiet();
  if (main_open) CHECK(rig.Ended(0)->code() == StatusCode::kAborted);
  if (part_open) CHECK(rig.Ended(1)->code() == StatusCode::kAborted);
  if (!main_open) rig.Open(0);
  rig.Open(2);
  rig.RunUntilQuiet();
  CHECK(rig.Ended(0)->code() == StatusCode::kAborted);
  CHECK(rig.Ended(2)->code() == StatusCode::kAborted);
  CHECK(CoreCluster::Find<HandoffEnded>(other) == nullptr);
  CHECK((CoreCluster::Find<HandoffPromised>(other) != nullptr) == !later_is_part);
  other.core->Handle(CancelHandoff{later.id, 2}, rig.cluster.now_us);
  rig.cluster.RunUntilIdle(1'000'000);
  CHECK_FALSE(rig.sink.core->busy());
}

TEST_CASE("parts: a late part of a handoff that has ended hears how") {
  PartsRig rig(9);
  rig.Lend();
  for (const size_t n : {0, 1, 2}) rig.OpenSendCommit(n);
  rig.RunUntilIdle(1'000'000);
  REQUIRE(rig.arrived);
  rig.sources[1].ticket = MakePart(rig.sources[0].ticket, 8, 0, 1);
  rig.sources[1].node->events.clear();
  rig.Open(1);
  rig.RunUntilQuiet();
  CHECK(rig.Ended(1)->code() == StatusCode::kAborted);
}

TEST_CASE("parts: no page comes back while a part's receive may write it") {
  SinkRig rig(3);
  const Ticket main = MakeMain(1, 2, 3, 4, 2);
  HandoffSink whole(main, 1, 3, &rig.pool.view(), kLimits, 0);
  const int32_t before = rig.stock.free_pages();
  whole.Promise(0, &rig.stock, &rig.effects);
  CHECK(whole.bound_pages() == 2);
  HandoffSink part(MakePart(main, 2, 0, 2), 5, 4, &rig.pool.view(), kLimits, 0);
  REQUIRE(whole.CheckPart(part.ticket()).ok());
  part.Await(whole.BeginPart(part.ticket()), 0, &rig.effects);
  CHECK_FALSE(whole.CheckPart(part.ticket()).ok());
  const wire::ChunkHeader chunk = rig.Page(1);
  REQUIRE(part.Check(chunk).verdict == HandoffSink::Verdict::kAccept);
  CHECK(whole.Check(chunk).verdict == HandoffSink::Verdict::kRefuse);
  part.Claim(chunk, &rig.stock);
  rig.effects = {};
  whole.Abort(absl::CancelledError("owner"), HandoffSink::PeerNotice::kCancel, 0, &rig.stock,
              &rig.effects);
  part.Abort(absl::CancelledError("owner"), HandoffSink::PeerNotice::kCancel, 0, &rig.stock,
             &rig.effects);
  CHECK(whole.failed());
  CHECK_FALSE(whole.ended());
  CHECK(rig.stock.free_pages() == before - 2);
  part.Landed(chunk, HandoffSink::Landing::kVerified, 0, &rig.stock, &rig.effects);
  REQUIRE(part.ended());
  CHECK(rig.stock.free_pages() == before - 2);
  whole.PartEnded(part, 0, &rig.stock, &rig.effects);
  REQUIRE(whole.ended());
  CHECK(rig.stock.free_pages() == before);
  CHECK(rig.effects.events.size() == 1);
}

}  // namespace
}  // namespace baton
