// Promises that several sources fill: any order of OPENs, room, cells and COMMITs works; ranges
// that do not fit, or of other attempts, fail with a reason.
#include <numeric>

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
    bool room = false;
    for (const size_t n : order) {
      if (n == kRoom) {
        rig.Lend();
        room = true;
      } else {
        rig.OpenSendCommit(n);
      }
      rig.RunUntilQuiet();
      if (n == kRoom) continue;
      CHECK(Count<HandoffNoRoom>(*rig.sources[n].node) == (room ? 0 : 1));
    }
    REQUIRE(rig.arrived);
    rig.RunUntilIdle(1'000'000);  // COMMITTED
    for (const size_t n : {0, 1, 2}) {
      REQUIRE(rig.Ended(n)->ok());
      CHECK(Count<HandoffPromised>(*rig.sources[n].node) == 1);
    }
    CHECK(rig.sink.core->counters().bytes_received == uint64_t(PartsRig::kKvBytes));
    CHECK(rig.sink.core->receive_pool().promises() == 1);
    rig.RequireOver();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("parts: each source is done with its range, the promise with the last of them") {
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
      REQUIRE(rig.Ended(n).has_value());
      CHECK(rig.Ended(n)->ok());
    }
    CHECK(rig.arrived);
    rig.RunUntilIdle(1'000'000);
    rig.RequireOver();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("parts: a promise waits for a slow head as long as that gets on, and no longer") {
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
        SendCells{
            .ticket_id = rig.sources[2].ticket.id, .plane = plane, .first_page = 3, .pages = {3}},
        rig.cluster.now_us);
  };
  pass(25'000'000);
  CHECK(rig.Ended(PartsRig::kTail)->ok());
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
    CHECK(rig.Ended(2)->code() == StatusCode::kDeadlineExceeded);
    CHECK(rig.Ended(1)->ok());  // its cells had arrived
  }
  rig.RequireOver();
}

TEST_CASE(
    "parts: a promise whose last source never comes fails at idle_timeout, and so does that") {
  NodeOptions options = PartsRig::SinkOptions();
  options.idle_timeout_ms = 10'000;
  PartsRig rig(4, options);
  rig.Lend();
  rig.OpenSendCommit(1);
  rig.OpenSendCommit(2);
  const int64_t start_us = rig.cluster.now_us;
  rig.RunUntilIdle(60'000'000);
  CHECK(rig.cluster.now_us - start_us < 11'000'000);
  for (const size_t n : {1, 2}) CHECK(rig.Ended(n)->ok());
  REQUIRE(rig.aborted.has_value());
  CHECK(rig.aborted->code() == StatusCode::kDeadlineExceeded);
  rig.OpenSendCommit(0);
  rig.RunUntilIdle(1'000'000);
  CHECK(rig.Ended(0)->code() == StatusCode::kDeadlineExceeded);
  rig.RequireOver();
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
  CHECK(rig.sink.owned.size() + size_t(rig.sink.core->receive_pool().in_pool()) == 16);
}

TEST_CASE("parts: a range that does not fit into its promise fails with it") {
  const Ticket main = MakeMain(1, 2, 6, 8, 4);
  Ticket other_request = MakePart(main, 9, 0, 1);
  ++other_request.request_id;
  SignTicket(kTestKey, other_request);
  const auto part = GENERATE_COPY(MakePart(main, 9, 2, 2),  // page 2 belongs to the first head
                                  MakePart(main, 9, 3, 2),  // page 4 belongs to the tail
                                  other_request);
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

TEST_CASE("parts: tickets whose ranges make no sense are refused") {
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
  CHECK(end_of(MakePart(main, 5, 1 << 30, 1)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeMain(6, 2, 6, 8, 7)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeMain(7, 2, 6, 8, -1)) == StatusCode::kInvalidArgument);
  ticket = MakePart(main, 9, 0, 1);
  ticket.promise.low ^= 1;  // differs from the signed ticket
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
  other.core->Handle(OpenHandoff{From(9, later), 2, rig.sink.link->address()}, rig.cluster.now_us);
  rig.RunUntilQuiet();
  if (main_open) CHECK(rig.Ended(0)->code() == StatusCode::kAborted);
  if (part_open) CHECK(rig.Ended(1)->code() == StatusCode::kAborted);
  if (!main_open) rig.Open(0);
  rig.Open(2);
  rig.RunUntilQuiet();
  CHECK(rig.Ended(0)->code() == StatusCode::kAborted);
  CHECK(rig.Ended(2)->code() == StatusCode::kAborted);
  CHECK(CoreCluster::Find<HandoffEnded>(other) == nullptr);
  CHECK(CoreCluster::Find<HandoffPromised>(other) != nullptr);
  other.core->Handle(CancelHandoff{later.id, 2}, rig.cluster.now_us);
  rig.cluster.RunUntilIdle(1'000'000);
  CHECK_FALSE(rig.sink.core->busy());
}

TEST_CASE("parts: a late source of a promise that has ended hears how") {
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

}  // namespace
}  // namespace baton
