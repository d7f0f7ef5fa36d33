// Known failures of other systems' KV transfer, replayed. The case names have the numbers of the
// list: R1 stranded pages, R8 a write after an abort, R13 cancels that meet, and so on.
#include <set>

#include "tests/kvtransfer/core_pair.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int32_t kKvPages = 3;
const Ticket kTicket = MakeTicket(1, 2, kKvPages, 4);

std::unique_ptr<CorePair> Begin(uint64_t seed, bool commits = true) {
  auto pair = std::make_unique<CorePair>(seed, 16, 260);
  pair->Open(kTicket);
  pair->SendAll(kTicket);
  if (commits) pair->Commit(kTicket);
  return pair;
}

int CountSteps(uint64_t seed) {
  const auto pair = Begin(seed);
  int n_steps = 0;
  while (pair->cluster.Step()) ++n_steps;
  return n_steps;
}

// Requires that each end reported exactly one end, and that the two agree.
void RequireOneEnd(CorePair& pair) {
  int n_ended = 0, n_arrived = 0, n_aborted = 0;
  bool ok = false;
  for (const TransferEvent& event : pair.source.events) {
    const auto* ended = std::get_if<HandoffEnded>(&event);
    if (ended == nullptr) continue;
    ++n_ended;
    ok = ended->status.ok();
  }
  for (const TransferEvent& event : pair.sink.events) {
    n_arrived += std::holds_alternative<HandoffArrived>(event);
    n_aborted += std::holds_alternative<HandoffAborted>(event);
  }
  REQUIRE(n_ended == 1);
  REQUIRE(n_arrived + n_aborted <= 1);
  if (ok) REQUIRE(n_arrived == 1);
}

TEST_CASE("R1 R3 R8 R13 R23b R28: cancels of either end or both, at every step, leave nothing") {
  const int who = GENERATE(1, 2, 3);  // bit 0: source, bit 1: sink
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", step " << step << ", who " << who);
      const auto pair = Begin(seed);
      for (int i = 0; i < step; ++i) pair->cluster.Step();
      const CancelHandoff cancel{kTicket.id, 1};
      if (who & 1) pair->source.core->Handle(cancel, pair->cluster.now_us);
      if (who & 2) pair->sink.core->Handle(cancel, pair->cluster.now_us);
      const int64_t start_us = pair->cluster.now_us;
      while (pair->cluster.Step())
        if (!pair->sink.PagesAccounted()) FAIL("somebody wrote a page that was let go of");
      REQUIRE(pair->cluster.now_us - start_us < 100'000);  // without any timer
      pair->RequireQuiet();
      RequireOneEnd(*pair);
    }
  }
}

TEST_CASE("R2: a ticket the sink rejects is told to the source at once") {
  CorePair pair(1);
  pair.Open(MakeTicket(1, 2, 3, 17));  // more pages than the sink's whole pool
  const int64_t start_us = pair.cluster.now_us;
  pair.cluster.RunUntilQuiet();
  CHECK(pair.cluster.now_us - start_us < 10'000);
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source)->status.code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("R10 R14: a source that never goes on is ended by time alone, with the pool full") {
  NodeOptions options = CorePair::Options(2, 400);
  options.idle_timeout_ms = 30'000;
  options.room_timeout_ms = 10'000;
  CoreCluster cluster(4);
  CoreNode& source = cluster.Add(CorePair::Options(1, 400), 16, kPlanes);
  CoreNode& sink = cluster.Add(options, 16, kPlanes);
  sink.Lend(16, cluster.now_us);
  const int64_t start_us = cluster.now_us;
  for (uint64_t n = 1; n <= 3; ++n)  // the third ticket finds no room
    source.core->Handle(OpenHandoff{MakeTicket(n, 2, 2, 8), 2, sink.link->address()},
                        cluster.now_us);
  cluster.RunUntilIdle(15'000'000);
  CHECK(sink.core->receive_pool().owed() == 16);
  CHECK(CoreCluster::Find<HandoffEnded>(source)->status.code() ==
        absl::StatusCode::kResourceExhausted);
  cluster.RunUntilIdle(60'000'000);
  CHECK(cluster.now_us - start_us < 31'000'000);
  CHECK(sink.core->receive_pool().free_pages() == 16);
  CHECK_FALSE(source.core->busy());
}

TEST_CASE("R15: a receive that fails by itself is made good") {
  CorePair pair(5, 16, 260);
  int n_failed = 0;
  pair.sink.tap.on_event = [&](LinkEvent* event) {
    auto* landed = std::get_if<ChunkLanded>(event);
    if (landed != nullptr && ++n_failed % 3 == 0) landed->ok = false;
  };
  pair.Open(kTicket);
  pair.SendAll(kTicket);
  pair.Commit(kTicket);
  pair.cluster.RunUntilQuiet();
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
  REQUIRE(arrived != nullptr);
  CHECK(n_failed >= 3);
  for (int32_t i = 0; i < kKvPages; ++i)
    CHECK(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
  pair.RequireQuiet();
}

TEST_CASE("R17: KV without its commit is never used, however complete") {
  for (const bool cancel : {true, false}) {
    const auto pair = Begin(6, /*commits=*/false);
    pair->cluster.RunUntilQuiet();
    REQUIRE(pair->sink.core->counters().bytes_received == kKvPages * 400);
    if (cancel) {
      pair->source.core->Handle(CancelHandoff{kTicket.id, 1}, pair->cluster.now_us);
    } else {
      pair->cluster.Kill(pair->source);
    }
    pair->cluster.RunUntilIdle(10'000'000);
    CHECK(CoreCluster::Find<HandoffArrived>(pair->sink) == nullptr);
    CHECK(CoreCluster::Find<HandoffAborted>(pair->sink) != nullptr);
    CHECK(pair->sink.core->receive_pool().free_pages() == 16);
  }
}

TEST_CASE("R22: a peer's death is its own: other handoffs of the survivor go on") {
  CorePair pair(7);
  CoreNode& other = pair.cluster.Add(CorePair::Options(3, 400), 16, kPlanes);
  other.Lend(16, pair.cluster.now_us);
  const Ticket to_dead = MakeTicket(1, 2, 4, 4), to_live = MakeTicket(2, 3, 4, 4);
  pair.Open(to_dead);
  pair.source.core->Handle(OpenHandoff{to_live, 3, other.link->address()}, pair.cluster.now_us);
  pair.SendAll(to_dead);
  pair.SendAll(to_live);
  for (int i = 0; i < 30; ++i) pair.cluster.Step();
  pair.cluster.Kill(pair.sink);
  pair.Commit(to_live);
  const int64_t start_us = pair.cluster.now_us;
  pair.cluster.RunUntilQuiet();
  CHECK(CoreCluster::Find<HandoffArrived>(other) != nullptr);
  CHECK(pair.cluster.now_us - start_us < 50'000);
}

TEST_CASE("R27: a cancel ends its own handoff and no other of the same connection") {
  CorePair pair(8);
  const Ticket first = MakeTicket(1, 2, 4, 4), second = MakeTicket(2, 2, 4, 4);
  for (const Ticket& ticket : {first, second}) {
    pair.Open(ticket);
    pair.SendAll(ticket);
    pair.Commit(ticket);
  }
  for (int i = 0; i < 30; ++i) pair.cluster.Step();
  pair.source.core->Handle(CancelHandoff{first.id, 1}, pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
  REQUIRE(arrived != nullptr);
  CHECK(arrived->ticket_id == second.id);
  for (int32_t i = 0; i < 4; ++i)
    CHECK(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
  pair.RequireQuiet();
}

TEST_CASE("R43: commits of two handoffs that arrive in any order stay with their KV") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CorePair pair(seed);
    for (uint64_t n = 1; n <= 2; ++n) {
      const Ticket ticket = MakeTicket(n, 2, 2, 2);
      pair.Open(ticket);
      SendCells cells{.ticket_id = ticket.id, .n_planes = 3, .pages = {}};
      for (int32_t page = 0; page < 2; ++page) cells.pages.push_back(int32_t(n) * 2 + page);
      pair.source.core->Handle(std::move(cells), pair.cluster.now_us);
    }
    for (const uint64_t n : {2, 1})
      pair.source.core->Handle(CommitHandoff{{n, ~n}, {.first_token = int32_t(n), .n_tokens = 2}},
                               pair.cluster.now_us);
    pair.cluster.RunUntilQuiet();
    int n_arrived = 0;
    for (const TransferEvent& event : pair.sink.events) {
      const auto* arrived = std::get_if<HandoffArrived>(&event);
      if (arrived == nullptr) continue;
      ++n_arrived;
      REQUIRE(arrived->record.first_token == int32_t(arrived->ticket_id.high));
      for (int32_t page = 0; page < 2; ++page)
        REQUIRE(SamePage(pair.source.pool, arrived->record.first_token * 2 + page, pair.sink.pool,
                         arrived->pages[size_t(page)]));
    }
    REQUIRE(n_arrived == 2);
  }
}

TEST_CASE("R44 R45: a storm of cancels costs no page and no time") {
  CorePair pair(9);
  uint64_t n_arrived = 0;
  for (uint64_t n = 1; n <= 2'000; ++n) {
    const Ticket ticket = MakeTicket(n, 2, 3, 5);
    pair.Open(ticket);
    pair.SendAll(ticket);
    pair.Commit(ticket);
    const uint64_t n_steps = pair.cluster.random() % 120;
    for (uint64_t i = 0; i < n_steps; ++i) pair.cluster.Step();
    if (n % 5 != 0)
      (n % 2 == 0 ? pair.source : pair.sink)
          .core->Handle(CancelHandoff{ticket.id, 1}, pair.cluster.now_us);
    pair.cluster.RunUntilQuiet();
    for (const TransferEvent& event : std::exchange(pair.sink.events, {})) {
      const auto* arrived = std::get_if<HandoffArrived>(&event);
      if (arrived == nullptr) continue;
      ++n_arrived;
      for (const int32_t page : arrived->pages) pair.sink.Own(page);
      pair.sink.Lend(5, pair.cluster.now_us);
    }
    pair.source.events.clear();
    REQUIRE(pair.sink.core->receive_pool().free_pages() == 16);
  }
  CHECK(n_arrived >= 400);
  pair.RequireQuiet();
}

TEST_CASE(
    "R47: any single control message that is lost ends or mends the handoff in bounded time") {
  int n_ok = 0, n_failed = 0;
  for (int lost = 0;; ++lost) {
    const auto pair = std::make_unique<CorePair>(10, 16, 260);
    int n_sent = 0;
    const auto drop = [&](std::string* message) {
      if (n_sent++ == lost) message->clear();
    };
    pair->source.tap.on_send = pair->sink.tap.on_send = drop;
    pair->Open(kTicket);
    pair->SendAll(kTicket);
    pair->Commit(kTicket);
    const int64_t start_us = pair->cluster.now_us;
    pair->cluster.RunUntilIdle(60'000'000);
    if (n_sent <= lost) break;  // no more messages
    INFO("message " << lost);
    CHECK(pair->cluster.now_us - start_us < 12'000'000);
    pair->RequireQuiet();
    RequireOneEnd(*pair);
    ++(CoreCluster::Find<HandoffEnded>(pair->source)->status.ok() ? n_ok : n_failed);
  }
  CHECK(n_ok >= 4);      // HELLO, HELLO_ACK, DONE, COMMIT, COMMITTED are repeated
  CHECK(n_failed >= 2);  // OPEN, PROMISE: the owner dispatches again
}

TEST_CASE("R48: ten idle minutes, and then a burst") {
  CorePair pair(11);
  const auto burst = [&](uint64_t from) {
    for (uint64_t n = from; n < from + 16; ++n) {
      const Ticket ticket = MakeTicket(n, 2, 1, 1);
      pair.Open(ticket);
      pair.source.core->Handle(SendCells{.ticket_id = ticket.id, .n_planes = 3, .pages = {1}},
                               pair.cluster.now_us);
      pair.Commit(ticket);
    }
    const int64_t start_us = pair.cluster.now_us;
    pair.cluster.RunUntilQuiet();
    CHECK(pair.cluster.now_us - start_us < 50'000);
    for (const TransferEvent& event : std::exchange(pair.sink.events, {})) {
      const auto* arrived = std::get_if<HandoffArrived>(&event);
      if (arrived == nullptr) continue;
      for (const int32_t page : arrived->pages) pair.sink.Own(page);
    }
    pair.sink.Lend(16, pair.cluster.now_us);
    CHECK(pair.sink.core->receive_pool().free_pages() == 16);
    pair.RequireQuiet();
  };
  burst(1);
  const uint64_t lost = pair.source.core->counters().connections_lost;
  for (int i = 0; i < 6'000; ++i) {
    pair.cluster.now_us += 100'000;
    pair.cluster.RunUntilQuiet();
  }
  CHECK(pair.source.tap.connections().size() == 1);  // PING kept the connection open
  burst(100);
  CHECK(pair.source.core->counters().connections_lost == lost);
}

}  // namespace
}  // namespace baton
