#include "kvtransfer/protocol/transfer_core.h"

#include <map>

#include "tests/kvtransfer/core_pair.h"
#include "tests/support/withheld_acks.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a handoff moves every byte into promised pages and commits once") {
  CorePair pair(1);
  const Ticket ticket = MakeTicket(1, 2, 5, 7);
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  REQUIRE(CoreCluster::Find<HandoffPromised>(pair.source) != nullptr);
  CHECK(pair.sink.core->receive_pool().free_pages() == 9);
  CHECK(pair.sink.core->receive_pool().in_pool() == 16);  // a promise is a count
  pair.SendAll(ticket);
  pair.cluster.RunUntilQuiet();
  CHECK(pair.sink.core->bound_pages() == 5);
  CHECK(CoreCluster::Find<HandoffArrived>(pair.sink) == nullptr);
  pair.Commit(ticket);
  pair.cluster.RunUntilQuiet();
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
  REQUIRE(arrived != nullptr);
  CHECK(arrived->request_id == 1001);
  CHECK(arrived->record.first_token == 42);
  CHECK(arrived->record.n_tokens == 99);
  REQUIRE(arrived->pages.size() == 7);
  for (int32_t i = 0; i < 5; ++i)
    CHECK(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
  const auto* ended = CoreCluster::Find<HandoffEnded>(pair.source);
  REQUIRE(ended != nullptr);
  CHECK(ended->status.ok());
  CHECK(pair.source.core->counters().handoffs_committed == 1);
  CHECK(pair.source.core->counters().bytes_sent == 5 * 400);
  CHECK(pair.sink.core->counters().bytes_received == 5 * 400);
  pair.RequireQuiet();
}

TEST_CASE("a handoff with nothing to send completes on its commit") {
  CorePair pair(2);
  const Ticket ticket = MakeTicket(1, 2, 0, 3);
  pair.Open(ticket);
  pair.Commit(ticket);
  pair.cluster.RunUntilQuiet();
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
  REQUIRE(arrived != nullptr);
  CHECK(arrived->pages.size() == 3);
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source)->status.ok());
  pair.RequireQuiet();
}

TEST_CASE("speeds of links are told when one was measured anew, at most every 20 ms") {
  CorePair pair(2);
  const auto n_told_after = [&](int64_t us) {
    pair.cluster.now_us += us;
    pair.cluster.RunUntilQuiet();
    int n = 0;
    for (const TransferEvent& event : std::exchange(pair.source.events, {})) {
      const auto* told = std::get_if<LinksMeasured>(&event);
      if (told == nullptr) continue;
      ++n;
      REQUIRE(told->links.size() == 1);
      CHECK(told->links[0] == pair.source.core->links().links().at(0).rate);
      CHECK(told->links[0].peer == 2);
      CHECK(told->links[0].bytes_per_second > 0);
    }
    return n;
  };
  const auto hand_over = [&](uint64_t n) {
    const Ticket ticket = MakeTicket(n, 2, 5, 5);
    pair.Open(ticket);
    pair.cluster.RunUntilQuiet();
    pair.SendAll(ticket);
    pair.Commit(ticket);
    pair.cluster.RunUntilQuiet();
  };
  CHECK(n_told_after(TransferCore::kTickUs) == 0);  // nothing is known of any link
  hand_over(1);
  CHECK(n_told_after(2 * TransferCore::kTickUs) == 1);
  CHECK(n_told_after(2 * TransferCore::kTickUs) == 0);
  hand_over(2);
  CHECK(n_told_after(TransferCore::kTickUs) == 1);
  hand_over(3);
  CHECK(n_told_after(TransferCore::kTickUs) == 0);
  CHECK(n_told_after(TransferCore::kTickUs) == 1);
}

TEST_CASE("what waits only for the engine's word on held pages is told no wait for room") {
  const bool has_room = GENERATE(true, false);
  CorePair pair(3, has_room ? 3 : 1);
  Ticket ticket = MakeTicket(1, 2, 2, 3);
  ticket.held_pages = 1;
  SignTicket(kTestKey, ticket);
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  const auto* told = CoreCluster::Find<HandoffNoRoom>(pair.source);
  REQUIRE(told != nullptr);
  CHECK(told->expected_wait_us == (has_room ? 0 : 777));
}

TEST_CASE("without room the answer is NO_ROOM at once, and promises follow in order of asking") {
  CorePair pair(3, 4);
  const Ticket tickets[] = {MakeTicket(1, 2, 2, 4), MakeTicket(2, 2, 1, 3), MakeTicket(3, 2, 1, 1)};
  for (const Ticket& ticket : tickets) {
    pair.Open(ticket);
    pair.cluster.RunUntilQuiet();
  }
  std::vector<uint64_t> no_room, promised;
  const auto read = [&] {
    for (const TransferEvent& event : std::exchange(pair.source.events, {})) {
      if (const auto* e = std::get_if<HandoffNoRoom>(&event)) {
        no_room.push_back(e->ticket_id.high);
        CHECK(e->expected_wait_us == 777);
      }
      if (const auto* e = std::get_if<HandoffPromised>(&event))
        promised.push_back(e->ticket_id.high);
    }
  };
  read();
  CHECK(promised == std::vector<uint64_t>{1});
  CHECK(no_room == std::vector<uint64_t>{2, 3});
  const ReceivePoolChanged* changed = nullptr;
  for (const TransferEvent& event : pair.sink.events)
    if (const auto* e = std::get_if<ReceivePoolChanged>(&event)) changed = e;
  REQUIRE(changed != nullptr);
  CHECK(changed->waiting == 2);
  CHECK(changed->free_pages == 0);
  // One page would be enough for the third handoff, but the second asked first.
  pair.sink.Lend(1, pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  read();
  CHECK(promised == std::vector<uint64_t>{1});
  pair.sink.Lend(2, pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  read();
  CHECK(promised == std::vector<uint64_t>{1, 2});
  pair.source.core->Handle(CancelHandoff{tickets[0].id, 1}, pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  read();
  CHECK(promised == std::vector<uint64_t>{1, 2, 3});
}

TEST_CASE("tickets are checked: signature, worker, size, epoch") {
  CorePair pair(4);
  const auto end_of = [&](const Ticket& ticket) {
    pair.source.events.clear();
    pair.Open(ticket);
    pair.cluster.RunUntilQuiet();
    const auto* ended = CoreCluster::Find<HandoffEnded>(pair.source);
    return ended != nullptr ? ended->status.code() : absl::StatusCode::kOk;
  };
  Ticket forged = MakeTicket(1, 2, 2, 3);
  forged.promise_pages = 4;
  CHECK(end_of(forged) == absl::StatusCode::kPermissionDenied);
  CHECK(end_of(MakeTicket(2, 3, 2, 3)) == absl::StatusCode::kFailedPrecondition);
  CHECK(end_of(MakeTicket(3, 2, 2, 17)) == absl::StatusCode::kResourceExhausted);
  CHECK(end_of(MakeTicket(4, 2, 4, 3)) == absl::StatusCode::kInvalidArgument);
  CHECK(end_of(MakeTicket(5, 2, -1, 3)) == absl::StatusCode::kInvalidArgument);
  // A cancel that comes before the OPEN refuses it, and earlier epochs, not later ones.
  pair.sink.core->Handle(CancelHandoff{{6, ~uint64_t{6}}, 2}, pair.cluster.now_us);
  CHECK(end_of(MakeTicket(6, 2, 1, 1, 1)) == absl::StatusCode::kCancelled);
  CHECK(end_of(MakeTicket(6, 2, 1, 1, 2)) == absl::StatusCode::kCancelled);
  CHECK(end_of(MakeTicket(6, 2, 1, 1, 3)) == absl::StatusCode::kOk);
  CHECK(CoreCluster::Find<HandoffPromised>(pair.source) != nullptr);
}

TEST_CASE("HELLO names what differs, and who was restarted") {
  const auto status_with = [](const std::function<void(NodeOptions&)>& change, Incarnation peer) {
    CoreCluster cluster(5);
    CoreNode& source = cluster.Add(TestOptions(1), 4, kPlanes);
    NodeOptions options = TestOptions(2);
    change(options);
    CoreNode& sink = cluster.Add(options, 4, kPlanes);
    source.core->Handle(OpenHandoff{MakeTicket(1, peer, 1, 1), peer, sink.link->address()},
                        cluster.now_us);
    cluster.RunUntilIdle(10'000'000);
    const auto* ended = CoreCluster::Find<HandoffEnded>(source);
    REQUIRE(ended != nullptr);
    return ended->status;
  };
  const auto says = [](const absl::Status& status, const char* what) {
    INFO(status);
    return status.code() == absl::StatusCode::kFailedPrecondition &&
           status.message().find(what) != absl::string_view::npos;
  };
  CHECK(says(status_with([](auto& o) { o.facts.model_fingerprint = 1; }, 2), "model fingerprint"));
  CHECK(says(status_with([](auto& o) { o.facts.numerics_id = "cuda-sm90"; }, 2), "cuda-sm90 here"));
  CHECK(says(status_with([](auto& o) { o.facts.layout_id = "other"; }, 2), "KV layout"));
  CHECK(says(status_with([](auto&) {}, 3), "restarted"));
  // A peer without the cluster's key gets no answer.
  CHECK(status_with([](auto& o) { o.facts.key[0] ^= 1; }, 2).code() ==
        absl::StatusCode::kUnavailable);
}

TEST_CASE("planes of other sizes are refused at HELLO") {
  CoreCluster cluster(5);
  CoreNode& source = cluster.Add(TestOptions(1), 4, {100, 200});
  CoreNode& sink = cluster.Add(TestOptions(2), 4, {100, 201});
  source.core->Handle(OpenHandoff{MakeTicket(1, 2, 1, 1), 2, sink.link->address()}, cluster.now_us);
  cluster.RunUntilIdle(1'000'000);
  CHECK(CoreCluster::Find<HandoffEnded>(source)->status.code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a damaged chunk is sent again, and given up after four tries") {
  CorePair pair(16);
  const Ticket ticket = MakeTicket(1, 2, 5, 5);
  pair.Open(ticket);
  pair.SendAll(ticket);
  pair.Commit(ticket);
  pair.cluster.network.set_faults({.corrupt_payload = 0.3});
  pair.cluster.RunUntilQuiet();
  REQUIRE(CoreCluster::Find<HandoffArrived>(pair.sink) != nullptr);
  const uint64_t damaged = Refused(pair.sink.core->counters(), ChunkRefusal::kPayload);
  CHECK(damaged > 0);
  CHECK(pair.source.core->counters().resent_chunks == damaged);

  CorePair hopeless(7);
  hopeless.cluster.network.set_faults({.corrupt_payload = 1});
  hopeless.Open(ticket);
  hopeless.SendAll(ticket);
  hopeless.cluster.RunUntilIdle(5'000'000);
  CHECK(CoreCluster::Find<HandoffEnded>(hopeless.source)->status.code() ==
        absl::StatusCode::kDataLoss);
  CHECK(CoreCluster::Find<HandoffAborted>(hopeless.sink)->status.code() ==
        absl::StatusCode::kDataLoss);
  CHECK(Refused(hopeless.sink.core->counters(), ChunkRefusal::kPayload) >= uint64_t(kMaxTries));
  hopeless.RequireQuiet();
}

TEST_CASE("a stopped peer is given up after the timeout, and everything comes back") {
  for (const int stopped : {0, 1}) {
    CorePair pair(8);
    const Ticket ticket = MakeTicket(1, 2, 5, 7);
    pair.Open(ticket);
    pair.SendAll(ticket);
    for (int i = 0; i < 25; ++i) pair.cluster.Step();
    CoreNode& live = stopped == 0 ? pair.sink : pair.source;
    CoreNode& dead = stopped == 0 ? pair.source : pair.sink;
    REQUIRE(live.core->busy());
    pair.cluster.network.Freeze(dead.link.get());
    const int64_t start_us = pair.cluster.now_us;
    while (live.core->busy() && pair.cluster.now_us < start_us + 60'000'000) {
      pair.cluster.now_us += TransferCore::kTickUs;
      while (pair.cluster.Turn(live)) {
      }
    }
    CHECK_FALSE(live.core->busy());
    const int64_t waited_us = pair.cluster.now_us - start_us;
    CHECK(waited_us >= 3'900'000);
    CHECK(waited_us <= 4'100'000);
    const absl::Status status = stopped == 0 ? CoreCluster::Find<HandoffAborted>(live)->status
                                             : CoreCluster::Find<HandoffEnded>(live)->status;
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(live.core->n_operations() == 0);
    CHECK(live.PagesAccounted());
    CHECK(live.core->receive_pool().owed() == 0);
  }
}

TEST_CASE("a live peer is never given up while prefill computes") {
  CorePair pair(9);
  const Ticket ticket = MakeTicket(1, 2, 5, 7);
  pair.Open(ticket);
  pair.cluster.RunUntilQuiet();
  for (int i = 0; i < 12'000; ++i) {  // two minutes
    pair.cluster.now_us += TransferCore::kTickUs;
    pair.cluster.RunUntilQuiet();
  }
  pair.SendAll(ticket);
  pair.Commit(ticket);
  pair.cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffArrived>(pair.sink) != nullptr);
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source)->status.ok());
}

TEST_CASE("withheld acknowledgements stall the source until its deadline, and lose nothing") {
  CoreCluster cluster(10);
  CoreNode& source = cluster.Add(TestOptions(1), 8, kPlanes);
  CoreNode& sink = cluster.Add(TestOptions(2), 8, kPlanes);
  WithholdAcks(&sink.tap);
  sink.Lend(8, cluster.now_us);
  source.core->Handle(OpenHandoff{MakeTicket(1, 2, 1, 1), 2, sink.link->address()}, cluster.now_us);
  source.core->Handle(SendCells{.ticket_id = {1, ~uint64_t{1}}, .n_planes = 3, .pages = {0}},
                      cluster.now_us);
  source.core->Handle(CommitHandoff{{1, ~uint64_t{1}}, {}}, cluster.now_us);
  const int64_t start_us = cluster.now_us;
  cluster.RunUntilIdle(30'000'000);
  CHECK(cluster.now_us - start_us > 9'900'000);
  CHECK(CoreCluster::Find<HandoffPromised>(source) != nullptr);
  CHECK(CoreCluster::Find<HandoffEnded>(source)->status.code() ==
        absl::StatusCode::kDeadlineExceeded);
  CHECK(CoreCluster::Find<HandoffArrived>(sink) == nullptr);
  CHECK(CoreCluster::Find<HandoffAborted>(sink) != nullptr);
  CHECK(sink.core->counters().chunks_received > 0);
  CHECK(sink.core->receive_pool().free_pages() == 8);
}

TEST_CASE("a later epoch replaces an earlier one at the sink") {
  CoreCluster cluster(11);
  CoreNode& first = cluster.Add(TestOptions(1), 8, kPlanes);
  CoreNode& sink = cluster.Add(TestOptions(2), 8, kPlanes);
  CoreNode& second = cluster.Add(TestOptions(3), 8, kPlanes);
  sink.Lend(8, cluster.now_us);
  first.core->Handle(OpenHandoff{MakeTicket(1, 2, 1, 8, 1), 2, sink.link->address()},
                     cluster.now_us);
  cluster.RunUntilQuiet();
  second.core->Handle(OpenHandoff{From(3, MakeTicket(1, 2, 1, 8, 2)), 2, sink.link->address()},
                      cluster.now_us);
  cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffEnded>(first)->status.code() == absl::StatusCode::kAborted);
  CHECK(CoreCluster::Find<HandoffAborted>(sink)->epoch == 1);
  CHECK(CoreCluster::Find<HandoffPromised>(second) != nullptr);
}

TEST_CASE("shutting down ends everything and gives the lent pages back") {
  for (const int who : {0, 1}) {
    CorePair pair(12);
    const Ticket ticket = MakeTicket(1, 2, 5, 7);
    pair.Open(ticket);
    pair.SendAll(ticket);
    for (int i = 0; i < 30; ++i) pair.cluster.Step();
    CoreNode& leaving = who == 0 ? pair.source : pair.sink;
    leaving.core->ShutDown(pair.cluster.now_us);
    pair.cluster.RunUntilIdle(3'000'000);
    pair.RequireQuiet();
    CHECK(CoreCluster::Find<HandoffEnded>(pair.source)->status.code() ==
          absl::StatusCode::kUnavailable);
    CHECK(CoreCluster::Find<HandoffAborted>(pair.sink)->status.code() ==
          absl::StatusCode::kUnavailable);
    leaving.core->CloseConnections(pair.cluster.now_us);
    leaving.core->GiveLentPagesBack();
    CHECK(CoreCluster::Find<PagesReturned>(leaving)->pages.size() == (who == 0 ? 0u : 16u));
    CHECK(leaving.core->receive_pool().in_pool() == 0);
  }
}

TEST_CASE("options and pools that cannot work are named at the start") {
  TestPool pool(2, {100});
  const auto bad = [&](const std::function<void(NodeOptions&, PoolView&)>& change) {
    NodeOptions options = TestOptions(1);
    PoolView view = pool.view();
    change(options, view);
    return !TransferCore::Validate(options, options.facts, view).ok();
  };
  CHECK_FALSE(bad([](auto&, auto&) {}));
  CHECK(bad([](auto& o, auto&) { o.facts.incarnation = 0; }));
  CHECK(bad([](auto& o, auto&) { o.chunk_bytes = 0; }));
  CHECK(bad([](auto& o, auto&) { o.chunk_bytes = kMaxChunkBytes + 1; }));
  CHECK(bad([](auto& o, auto&) { o.peer_timeout_ms = 0; }));
  CHECK(bad([](auto&, auto& p) { p.planes[0].bytes = 101; }));
  CHECK(bad([](auto&, auto& p) { p.planes.clear(); }));
  CHECK(bad([](auto&, auto& p) { p.n_pages = 0; }));
}

}  // namespace
}  // namespace baton
