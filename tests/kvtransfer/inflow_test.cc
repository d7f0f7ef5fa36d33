// Inflows: handoffs into pages that the engine names. Covers the order of the engine's wait and the
// peer's OPEN, the engine's events and their time, and limits of awaited tickets.
#include <algorithm>

#include "tests/kvtransfer/handoff_rigs.h"
#include "tests/kvtransfer/inflow_pair.h"
#include "tests/support/withheld_acks.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using absl::StatusCode;

TEST_CASE("inflow: progress is told in ascending order, once per rise, however chunks arrive") {
  using Progress = std::pair<int32_t, int32_t>;  // (planes, pages of the next plane)
  TestPool pool(4, {10, 20, 30});
  std::vector<std::pair<uint32_t, uint32_t>> order;  // (plane, page)
  for (uint32_t plane = 0; plane < 3; ++plane)
    for (uint32_t page = 0; page < 2; ++page) order.emplace_back(plane, page);
  do {
    const Ticket ticket = MakeTicket(1, 2, 2, 0);
    TransferSetup setup = MakeSetup(2, pool.view(), nullptr);
    ReceivePool receive_pool;
    PagePromise promise(ticket, &setup, &receive_pool, 0);
    HandoffSink sink(ticket, 1, 3, &promise, &setup, 0);
    promise.Begin(ticket, 0);
    REQUIRE(promise.Name(AwaitInflow{{}, 1, {3, 1}}, 0).ok());
    sink.Promised();
    std::vector<bool> here(6);  // (plane, page)
    std::vector<Progress> expected, told;
    uint32_t seq = 0;
    for (const auto& [plane, page] : order) {
      const wire::ChunkHeader header{.handoff = sink.handoff(),
                                     .plane = plane,
                                     .n_planes = 1,
                                     .first_page = page,
                                     .n_pages = 1,
                                     .length = 10 * (plane + 1),
                                     .chunk_seq = seq++};
      REQUIRE(sink.Check(header).verdict == HandoffSink::Verdict::kAccept);
      REQUIRE(sink.Claim(header).page_ids[0] == (page == 0 ? 3 : 1));
      const size_t before = setup.events.size();
      sink.Landed(header, true, 0);
      here[2 * plane + page] = true;
      const auto prefix = int32_t(std::find(here.begin(), here.end(), false) - here.begin());
      const Progress now{prefix / 2, prefix % 2};
      if (now > (expected.empty() ? Progress{} : expected.back())) expected.push_back(now);
      REQUIRE(setup.events.size() <= before + 1);
    }
    for (const TransferEvent& event : setup.events) {
      const auto& arrived = std::get<InflowArrived>(event);
      told.emplace_back(arrived.n_planes, arrived.n_pages);
    }
    REQUIRE(told == expected);
    REQUIRE(told.back() == Progress{3, 0});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("inflow: awaited before OPEN or after it, its bytes land in the named pages alone") {
  const bool await_first = GENERATE(true, false);
  for (const int64_t chunk_bytes : {260, 400, 2'000}) {  // cells, rows of pages, all at once
    InflowPair pair(1, chunk_bytes);
    if (await_first) pair.Await();
    CHECK(pair.sink.core->busy() == await_first);
    pair.OpenSendCommit();
    if (!await_first) {
      pair.RunUntilQuiet();
      CHECK(CoreCluster::Find<HandoffNoRoom>(pair.source)->expected_wait_us == 0);
      CHECK(CoreCluster::Find<HandoffPromised>(pair.source) == nullptr);
      pair.Await();
    }
    pair.RunUntilQuiet();
    CHECK((CoreCluster::Find<HandoffNoRoom>(pair.source) == nullptr) == await_first);
    CHECK(pair.told.back() == 3);
    CHECK(pair.Ended().ok());
    CHECK(pair.sink.core->counters().bytes_received == uint64_t(pair.kKvBytes));
    pair.RequireOver();
  }
}

TEST_CASE("inflow: each plane is told as soon as its cells are in, before any COMMIT") {
  InflowPair pair(2);
  pair.Await();
  pair.Open(pair.ticket);
  const auto send = [&](int32_t plane) {
    pair.source.core->Handle(
        SendCells{.ticket_id = pair.ticket.id, .plane = plane, .pages = {0, 1, 2, 3, 4}},
        pair.cluster.now_us);
    pair.RunUntilQuiet();
  };
  send(0);
  CHECK(pair.told == std::vector<int32_t>{1});
  send(2);
  CHECK(pair.told == std::vector<int32_t>{1});
  send(1);
  CHECK(pair.told == std::vector<int32_t>{1, 3});
  CHECK(pair.n_pages == 0);
  CHECK(pair.sink.core->busy());  // on its own, until its COMMIT
  pair.Commit(pair.ticket);
  pair.RunUntilQuiet();
  CHECK(pair.Ended().ok());
  pair.RequireOver();
}

TEST_CASE("inflow: pages of a plane are told as they follow on, also where a later plane is here") {
  InflowPair pair(2);
  pair.Await();
  pair.Open(pair.ticket);
  const auto send = [&](int32_t plane, int32_t first_page, std::vector<int32_t> pages) {
    pair.source.core->Handle(SendCells{.ticket_id = pair.ticket.id,
                                       .plane = plane,
                                       .first_page = first_page,
                                       .pages = std::move(pages)},
                             pair.cluster.now_us);
    pair.RunUntilQuiet();
    return std::pair(pair.n_planes, pair.n_pages);
  };
  using Progress = std::pair<int32_t, int32_t>;
  CHECK(send(0, 0, {0, 1}) == Progress{0, 2});
  CHECK(send(1, 0, {0, 1, 2}) == Progress{0, 2});
  CHECK(send(0, 3, {3, 4}) == Progress{0, 2});
  CHECK(send(0, 2, {2}) == Progress{1, 3});
  CHECK(send(1, 3, {3, 4}) == Progress{2, 0});
  CHECK(send(2, 0, {0, 1, 2, 3, 4}) == Progress{3, 0});
  pair.Commit(pair.ticket);
  pair.RunUntilQuiet();
  CHECK(pair.Ended().ok());
  pair.RequireOver();
}

TEST_CASE("inflow: after all planes its end is no news for the engine") {
  for (const int how : {0, 1, 2, 3}) {
    InflowPair pair(3);
    pair.Await();
    pair.Open(pair.ticket);
    pair.SendAll(pair.ticket);
    pair.RunUntilQuiet();
    REQUIRE(pair.arrived());
    if (how == 0) pair.CancelAtSink();
    if (how == 1) pair.source.core->Handle(CancelHandoff{pair.ticket.id, 1}, pair.cluster.now_us);
    if (how == 2) pair.cluster.Kill(pair.source);
    if (how == 3) pair.sink.core->ShutDown(pair.cluster.now_us);
    pair.RunUntilIdle(10'000'000);
    if (how < 2) CHECK(pair.Ended().code() == StatusCode::kCancelled);
    CHECK_FALSE(pair.failed.has_value());
    pair.RequireOver();
  }
}

TEST_CASE("inflow: one that waits for the engine delays no other handoff") {
  InflowPair pair(4);
  pair.Open(pair.ticket);
  pair.RunUntilQuiet();
  REQUIRE(CoreCluster::Find<HandoffNoRoom>(pair.source) != nullptr);
  CoreNode& other = pair.cluster.Add(CorePair::Options(3, 260), 4, kPlanes);
  const Ticket ordinary = MakeTicket(2, 2, 1, 4);  // all lent pages
  other.core->Handle(OpenHandoff{From(3, ordinary), 2, pair.sink.link->address()},
                     pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffPromised>(other) != nullptr);
  const ReceivePoolChanged* changed = nullptr;
  for (const TransferEvent& event : pair.sink.events)
    if (const auto* e = std::get_if<ReceivePoolChanged>(&event)) changed = e;
  REQUIRE(changed != nullptr);
  CHECK(*changed == ReceivePoolChanged{.free_pages = 0, .waiting = 0, .promises = 1});
  // A promised ordinary handoff does not hold up an inflow.
  pair.sink.core->Handle(AwaitInflow{pair.ticket.id, 1, pair.named}, pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffPromised>(pair.source) != nullptr);
}

TEST_CASE("inflow: the wait for the engine ends at room_timeout, and who asks then hears so") {
  NodeOptions options = CorePair::Options(2, 260);
  options.room_timeout_ms = 10'000;
  CoreCluster cluster(5);
  CoreNode& head = cluster.Add(CorePair::Options(1, 260), 16, kPlanes);
  CoreNode& tail = cluster.Add(options, 16, kPlanes);
  const Ticket ticket = MakeTicket(1, 2, 2, 0);
  head.core->Handle(OpenHandoff{ticket, 2, tail.link->address()}, cluster.now_us);
  const int64_t start_us = cluster.now_us;
  cluster.RunUntilIdle(60'000'000);
  CHECK(cluster.now_us - start_us < 11'000'000);
  CHECK(CoreCluster::Find<HandoffEnded>(head)->status.code() == StatusCode::kResourceExhausted);
  CHECK(tail.events.empty());
  tail.core->Handle(AwaitInflow{ticket.id, 1, {0, 1}}, cluster.now_us);
  REQUIRE(tail.events.size() == 1);
  CHECK(std::get<InflowFailed>(tail.events[0]).status.code() == StatusCode::kResourceExhausted);
  CHECK_FALSE(tail.core->busy());
}

TEST_CASE("inflow: what an earlier one brought is not sent again") {
  const bool await_first = GENERATE(true, false);
  const bool breaks = GENERATE(true, false);
  for (const int64_t chunk_bytes : {260, 400, 2'000})
    for (int32_t place = 0; place < InflowPair::kPlanesInAll * InflowPair::kKvPages; ++place) {
      InflowPair pair(uint64_t(place), chunk_bytes);
      const int64_t there =
          pair.BringBefore(place / InflowPair::kKvPages, place % InflowPair::kKvPages);
      if (await_first) pair.Await();
      pair.OpenSendCommit();
      if (!await_first) {
        pair.RunUntilQuiet();
        pair.Await();
      }
      for (int steps = breaks ? place + 8 : 0; steps > 0 && pair.Step(); --steps) {
      }
      if (breaks) pair.cluster.CutConnections(pair.source);
      pair.RunUntilIdle(3'000'000);
      REQUIRE(pair.arrived());
      REQUIRE(pair.Ended().ok());
      const uint64_t received = pair.sink.core->counters().bytes_received;
      if (!breaks) REQUIRE(received == uint64_t(pair.kKvBytes - there));
      REQUIRE(received >= uint64_t(pair.kKvBytes - there));
      pair.RequireOver();
    }
}

TEST_CASE("inflow: awaited and cancelled before its OPEN, which is then refused") {
  InflowPair pair(6);
  pair.Await();
  CHECK(pair.sink.core->busy());
  CHECK_FALSE(pair.over());
  pair.CancelAtSink();
  REQUIRE(pair.failed.has_value());
  CHECK(pair.failed->code() == StatusCode::kCancelled);
  CHECK_FALSE(pair.sink.core->busy());
  pair.OpenSendCommit();
  pair.RunUntilQuiet();
  CHECK(pair.Ended().code() == StatusCode::kCancelled);
  pair.RequireOver();
}

TEST_CASE("inflow: awaited after a cancel or while shutting down, the answer comes at once") {
  const auto answer = [](const std::function<void(InflowPair&)>& before) {
    InflowPair pair(7);
    before(pair);
    pair.Await();
    REQUIRE(pair.failed.has_value());
    pair.RunUntilQuiet();
    pair.RequireOver();
    return pair.failed->code();
  };
  CHECK(answer([](InflowPair& pair) { pair.CancelAtSink(); }) == StatusCode::kCancelled);
  CHECK(answer([](InflowPair& pair) {  // a later epoch, so this one is cancelled too
          pair.sink.core->Handle(CancelHandoff{pair.ticket.id, 2}, pair.cluster.now_us);
        }) == StatusCode::kCancelled);
  CHECK(answer([](InflowPair& pair) {
          pair.Open(pair.ticket);
          pair.RunUntilQuiet();
          pair.source.core->Handle(CancelHandoff{pair.ticket.id, 1}, pair.cluster.now_us);
          pair.RunUntilQuiet();
        }) == StatusCode::kCancelled);
  CHECK(answer([](InflowPair& pair) { pair.sink.core->ShutDown(pair.cluster.now_us); }) ==
        StatusCode::kUnavailable);
  InflowPair pair(7);
  pair.Await();
  pair.sink.core->ShutDown(pair.cluster.now_us);
  pair.Look();
  REQUIRE(pair.failed.has_value());
  CHECK(pair.failed->code() == StatusCode::kUnavailable);
  pair.RequireOver();
}

// Two heads and a tail, with inflows of one page under one ticket id.
struct Epochs {
  Epochs()
      : cluster(8),
        first(cluster.Add(CorePair::Options(1, 260), 4, kPlanes)),
        tail(cluster.Add(CorePair::Options(2, 260), 8, kPlanes)),
        second(cluster.Add(CorePair::Options(3, 260), 4, kPlanes)) {}
  void Open(CoreNode& head, Epoch epoch) {
    const Ticket ticket = From(head.options.facts.incarnation, MakeTicket(1, 2, 1, 0, epoch));
    head.core->Handle(OpenHandoff{ticket, 2, tail.link->address()}, cluster.now_us);
    cluster.RunUntilQuiet();
  }
  void Await(Epoch epoch) {
    tail.core->Handle(AwaitInflow{{1, ~uint64_t{1}}, epoch, {int32_t(epoch)}}, cluster.now_us);
    cluster.RunUntilQuiet();
  }
  std::vector<Epoch> Failed() const {  // all fail because a later attempt came
    std::vector<Epoch> epochs;
    for (const TransferEvent& event : tail.events) {
      const auto* failed = std::get_if<InflowFailed>(&event);
      if (failed == nullptr) continue;
      CHECK(failed->status.code() == StatusCode::kAborted);
      epochs.push_back(failed->epoch);
    }
    return epochs;
  }
  static StatusCode Ended(const CoreNode& head) {
    const auto* ended = CoreCluster::Find<HandoffEnded>(head);
    return ended == nullptr ? StatusCode::kOk : ended->status.code();
  }
  CoreCluster cluster;
  CoreNode &first, &tail, &second;
};

TEST_CASE("inflow: a later epoch, opened or awaited, ends what there is of earlier ones") {
  Epochs rig;
  const bool await_earlier = GENERATE(true, false);
  const bool open_earlier = GENERATE(true, false);
  const bool await_later = GENERATE(true, false);  // the first of the later epoch's two
  if (await_earlier) rig.Await(1);
  if (open_earlier) rig.Open(rig.first, 1);
  if (await_later) rig.Await(2);
  if (!await_later) rig.Open(rig.second, 2);
  CHECK(rig.Failed() == (await_earlier ? std::vector<Epoch>{1} : std::vector<Epoch>{}));
  if (open_earlier) CHECK(Epochs::Ended(rig.first) == StatusCode::kAborted);
  if (await_later) rig.Open(rig.second, 2);
  if (!await_later) rig.Await(2);
  CHECK(CoreCluster::Find<HandoffPromised>(rig.second) != nullptr);
  rig.tail.core->Handle(CancelHandoff{{1, ~uint64_t{1}}, 2}, rig.cluster.now_us);
  rig.cluster.RunUntilQuiet();
  CHECK_FALSE(rig.tail.core->busy());
}

TEST_CASE("inflow: an earlier epoch than the one opened or awaited has no chance any more") {
  Epochs rig;
  const bool later_is_open = GENERATE(true, false);
  if (later_is_open) rig.Open(rig.second, 2);
  if (!later_is_open) rig.Await(2);
  rig.Open(rig.first, 1);
  CHECK(Epochs::Ended(rig.first) == StatusCode::kAborted);
  rig.Await(1);
  CHECK(rig.Failed() == std::vector<Epoch>{1});
  if (later_is_open) rig.Await(2);
  if (!later_is_open) rig.Open(rig.second, 2);
  CHECK(CoreCluster::Find<HandoffPromised>(rig.second) != nullptr);
  CHECK(rig.Failed() == std::vector<Epoch>{1});
}

TEST_CASE("inflow: ticket and engine that do not mean the same are both told") {
  const bool await_first = GENERATE(true, false);
  const auto ticket =
      GENERATE(MakeTicket(1, 2, 2, 0), MakeTicket(1, 2, 3, 3));  // not three, not an inflow
  CorePair pair(9, 4, 260);
  const auto await = [&] {
    pair.sink.core->Handle(AwaitInflow{ticket.id, 1, {7, 8, 9}}, pair.cluster.now_us);
  };
  if (await_first) await();
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  if (!await_first) await();
  pair.cluster.RunUntilQuiet();
  const auto require_refused = [&] {
    const auto* ended = CoreCluster::Find<HandoffEnded>(pair.source);
    REQUIRE(ended != nullptr);
    CHECK(ended->status.code() == StatusCode::kInvalidArgument);
  };
  require_refused();
  REQUIRE(CoreCluster::Find<InflowFailed>(pair.sink) != nullptr);
  CHECK(CoreCluster::Find<InflowFailed>(pair.sink)->status.code() == StatusCode::kInvalidArgument);
  CHECK(pair.sink.core->receive_pool().free_pages() == 4);
  pair.RequireQuiet();
  // A second OPEN gets the same answer.
  pair.source.events.clear();
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  require_refused();
}

TEST_CASE("inflow: tickets without pages or with too many are refused") {
  CorePair pair(10);
  const auto end_of = [&](const Ticket& ticket) {
    pair.source.events.clear();
    pair.Open(ticket);
    pair.cluster.RunUntilQuiet();
    return CoreCluster::Find<HandoffEnded>(pair.source)->status.code();
  };
  CHECK(end_of(MakeTicket(1, 2, 0, 0)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeTicket(2, 2, -1, 0)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeTicket(3, 2, 1, -1)) == StatusCode::kInvalidArgument);
  CHECK(end_of(MakeTicket(4, 2, 17, 0)) == StatusCode::kResourceExhausted);
}

TEST_CASE("inflow: planes are told although acknowledgements are withheld") {
  CoreCluster cluster(11);
  CoreNode& head = cluster.Add(CorePair::Options(1, 260), 4, kPlanes);
  CoreNode& tail = cluster.Add(CorePair::Options(2, 260), 4, kPlanes);
  WithholdAcks(&tail.tap);
  const Ticket ticket = MakeTicket(1, 2, 1, 0);
  tail.core->Handle(AwaitInflow{ticket.id, 1, {2}}, cluster.now_us);
  head.core->Handle(OpenHandoff{ticket, 2, tail.link->address()}, cluster.now_us);
  head.core->Handle(SendCells{.ticket_id = ticket.id, .n_planes = 3, .pages = {0}}, cluster.now_us);
  head.core->Handle(CommitHandoff{ticket.id, {}}, cluster.now_us);
  cluster.RunUntilIdle(30'000'000);
  CHECK(CoreCluster::Find<HandoffEnded>(head)->status.code() == StatusCode::kDeadlineExceeded);
  std::vector<int32_t> told;
  for (const TransferEvent& event : tail.events) {
    CHECK_FALSE(std::holds_alternative<InflowFailed>(event));
    CHECK_FALSE(std::holds_alternative<HandoffAborted>(event));
    if (const auto* arrived = std::get_if<InflowArrived>(&event)) told.push_back(arrived->n_planes);
  }
  REQUIRE_FALSE(told.empty());
  CHECK(told.back() == 3);
  CHECK_FALSE(tail.core->busy());
}

}  // namespace
}  // namespace baton
