// Handoffs whose connection breaks at any step of their life: they continue over the next
// connection with exactly the missing chunks, or end within their limit when the peer is gone.
#include <optional>
#include <set>

#include "tests/kvtransfer/core_pair.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int32_t kKvPages = 5;
constexpr int64_t kKvBytes = kKvPages * 400;
constexpr int64_t kPeerTimeoutUs = 4'000'000;
const Ticket kTicket = MakeTicket(1, 2, kKvPages, 7);

// Starts a handoff with chunks of one cell, in small windows. lent 0: the sink has no room yet.
std::unique_ptr<CorePair> Begin(uint64_t seed, int32_t lent = 16) {
  auto pair = std::make_unique<CorePair>(seed, lent, 260);
  pair->Open(kTicket);
  pair->SendAll(kTicket);
  pair->Commit(kTicket);
  return pair;
}

// Returns the number of steps of an undisturbed handoff.
int CountSteps(uint64_t seed) {
  const auto pair = Begin(seed);
  int n_steps = 0;
  while (pair->cluster.Step()) ++n_steps;
  REQUIRE(CoreCluster::Find<HandoffArrived>(pair->sink) != nullptr);
  return n_steps;
}

void RequireArrived(CorePair& pair) {
  int n_arrived = 0;
  for (const TransferEvent& event : pair.sink.events) {
    REQUIRE_FALSE(std::holds_alternative<HandoffAborted>(event));
    const auto* arrived = std::get_if<HandoffArrived>(&event);
    if (arrived == nullptr) continue;
    ++n_arrived;
    for (int32_t i = 0; i < kKvPages; ++i)
      REQUIRE(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
  }
  REQUIRE(n_arrived == 1);
  int n_promised = 0, n_ended = 0;
  for (const TransferEvent& event : pair.source.events) {
    n_promised += std::holds_alternative<HandoffPromised>(event);
    const auto* ended = std::get_if<HandoffEnded>(&event);
    if (ended == nullptr) continue;
    ++n_ended;
    INFO(ended->status);
    REQUIRE(ended->status.ok());
  }
  REQUIRE(n_promised == 1);
  REQUIRE(n_ended == 1);
  pair.RequireQuiet();
}

enum class Cut { kBothKnow, kSinkLearnsLate, kSourceLearnsLate };

// Cuts after `n_steps`, lets the handoff end, and requires that the bytes sent after the cut are
// those that the sink lacked. True: the handoff was resumed.
bool CutAfter(uint64_t seed, int n_steps, Cut how) {
  const auto pair = Begin(seed);
  CoreCluster& cluster = pair->cluster;
  for (int i = 0; i < n_steps; ++i) cluster.Step();
  if (how == Cut::kSinkLearnsLate) pair->sink.tap.withholds_losses = true;
  if (how == Cut::kSourceLearnsLate) pair->source.tap.withholds_losses = true;
  const bool over = CoreCluster::Find<HandoffEnded>(pair->source) != nullptr;
  cluster.CutConnections(pair->source);
  const int64_t cut_us = cluster.now_us;

  const TransferCounters& sent = pair->source.core->counters();
  const TransferCounters& landed = pair->sink.core->counters();
  std::optional<uint64_t> sent_before, missing;
  while (cluster.now_us < cut_us + 20'000'000 &&
         (pair->source.core->busy() || pair->sink.core->busy())) {
    if (!cluster.Step()) cluster.now_us += TransferCore::kTickUs;
    if (cluster.now_us > cut_us + 200'000) {
      pair->source.tap.withholds_losses = pair->sink.tap.withholds_losses = false;
    }
    if (!pair->source.PagesAccounted() || !pair->sink.PagesAccounted()) FAIL("pages");
    if (!sent_before && sent.connections_lost > 0) sent_before = sent.bytes_sent;
    if (!missing && sent.handoffs_resumed > 0) missing = kKvBytes - landed.bytes_received;
  }
  RequireArrived(*pair);
  REQUIRE(landed.bytes_received == uint64_t(kKvBytes));  // every cell once
  REQUIRE(sent.connections_lost <= (over ? 0 : 1));      // the last event may have been under way
  REQUIRE(cluster.now_us < cut_us + 1'000'000);
  if (missing) REQUIRE(sent.bytes_sent == *sent_before + *missing);
  return sent.handoffs_resumed > 0;
}

TEST_CASE("a connection cut at any step: only what is missing is sent again") {
  const Cut how = GENERATE(Cut::kBothKnow, Cut::kSinkLearnsLate, Cut::kSourceLearnsLate);
  int n_resumed = 0, n_runs = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step, ++n_runs) {
      INFO("seed " << seed << ", cut after step " << step << " of " << n_steps << ", way "
                   << int(how));
      n_resumed += CutAfter(seed, step, how);
    }
  }
  CHECK(n_resumed > n_runs / 2);
}

TEST_CASE("connections cut again and again: a handoff ends well as long as chunks get through") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    const auto pair = Begin(seed);
    CoreCluster& cluster = pair->cluster;
    uint64_t received = 0;
    for (int n_cuts = 0; n_cuts < 12; ++n_cuts) {  // one cut after every chunk that arrived
      while (pair->source.core->busy() && pair->sink.core->counters().chunks_received == received)
        if (!cluster.Step()) cluster.now_us += TransferCore::kTickUs;
      received = pair->sink.core->counters().chunks_received;
      cluster.CutConnections(pair->source);
    }
    cluster.RunUntilIdle(10'000'000);
    RequireArrived(*pair);
    CHECK(pair->source.core->counters().handoffs_resumed >= 4);
    CHECK(pair->sink.core->counters().bytes_received == uint64_t(kKvBytes));
  }
}

TEST_CASE("connections that never live long enough end the handoff within the bound") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto pair = Begin(seed, /*lent=*/0);  // no room, so no progress
    CoreCluster& cluster = pair->cluster;
    const int64_t start_us = cluster.now_us;
    int n_cuts = 0;
    while (pair->source.core->busy() && cluster.now_us < start_us + 60'000'000) {
      if (cluster.Step()) continue;
      cluster.now_us += TransferCore::kTickUs;
      if (pair->source.tap.connections().empty()) continue;
      cluster.CutConnections(pair->source);
      ++n_cuts;
    }
    CHECK(n_cuts == kMaxConnects);
    CHECK(cluster.now_us - start_us < 1'500'000);
    CHECK(CoreCluster::Find<HandoffEnded>(pair->source)->status.code() ==
          absl::StatusCode::kUnavailable);
    cluster.RunUntilIdle(10'000'000);
    CHECK(cluster.now_us - start_us < kPeerTimeoutUs + 1'500'000);
    pair->RequireQuiet();
  }
}

TEST_CASE("a sink that waits for room keeps its place when its connection breaks") {
  CorePair pair(3, 0);
  pair.Open(MakeTicket(1, 2, 1, 2));
  pair.cluster.RunUntilQuiet();
  CoreNode& other = pair.cluster.Add(CorePair::Options(3, 400), 4, kPlanes);
  other.core->Handle(OpenHandoff{From(3, MakeTicket(2, 2, 1, 2)), 2, pair.sink.link->address()},
                     pair.cluster.now_us);
  pair.cluster.RunUntilQuiet();
  pair.cluster.CutConnections(pair.source);
  pair.cluster.RunUntilQuiet();
  SECTION("it is back in time") {
    for (int i = 0; i < 10; ++i) {
      pair.cluster.now_us += TransferCore::kTickUs;
      pair.cluster.RunUntilQuiet();
    }
    pair.sink.Lend(2, pair.cluster.now_us);
    pair.cluster.RunUntilQuiet();
    CHECK(CoreCluster::Find<HandoffPromised>(pair.source) != nullptr);
    CHECK(CoreCluster::Find<HandoffPromised>(other) == nullptr);
  }
  SECTION("a peer that is away delays no other") {
    pair.sink.Lend(2, pair.cluster.now_us);
    pair.cluster.Turn(pair.sink);
    pair.cluster.RunUntilQuiet();
    CHECK(CoreCluster::Find<HandoffPromised>(pair.source) == nullptr);
    CHECK(CoreCluster::Find<HandoffPromised>(other) != nullptr);
  }
}

TEST_CASE("a peer killed at any step: the other end lets go of everything within the bound") {
  const bool kill_sink = GENERATE(true, false);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", after step " << step << (kill_sink ? ", sink" : ", source"));
      const auto pair = Begin(seed);
      CoreCluster& cluster = pair->cluster;
      for (int i = 0; i < step; ++i) cluster.Step();
      CoreNode& live = kill_sink ? pair->source : pair->sink;
      cluster.Kill(kill_sink ? pair->sink : pair->source);
      const int64_t start_us = cluster.now_us;
      cluster.RunUntilIdle(20'000'000);
      REQUIRE_FALSE(live.core->busy());
      REQUIRE(cluster.now_us - start_us < (kill_sink ? 1'000'000 : kPeerTimeoutUs + 100'000));
      REQUIRE(live.core->n_operations() == 0);
      REQUIRE(live.core->receive_pool().owed() == 0);
      REQUIRE(live.PagesAccounted());
      REQUIRE(live.link->idle());
    }
  }
}

TEST_CASE("a restarted sink does not know the handoff: it ends, named so") {
  const auto pair = Begin(5);
  CoreCluster& cluster = pair->cluster;
  for (int i = 0; i < 60; ++i) cluster.Step();
  REQUIRE(CoreCluster::Find<HandoffPromised>(pair->source) != nullptr);
  REQUIRE(pair->source.core->busy());
  // Another incarnation answers at the same address.
  CoreNode& next = cluster.Add(CorePair::Options(7, 260), 16, kPlanes);
  pair->source.tap.connects_to = next.link->address();
  cluster.Kill(pair->sink);
  cluster.RunUntilIdle(10'000'000);
  const auto* ended = CoreCluster::Find<HandoffEnded>(pair->source);
  REQUIRE(ended != nullptr);
  CHECK(ended->status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ended->status.message().find("restarted") != absl::string_view::npos);
}

TEST_CASE("a cancel while the connection is down ends both sides, in whatever order they hear") {
  for (const bool at_source : {true, false}) {
    const auto pair = Begin(6);
    CoreCluster& cluster = pair->cluster;
    for (int i = 0; i < 60; ++i) cluster.Step();
    cluster.CutConnections(pair->source);
    while (pair->source.core->counters().connections_lost == 0 ||
           pair->sink.core->counters().connections_lost == 0)
      REQUIRE(cluster.Step());
    CoreNode& node = at_source ? pair->source : pair->sink;
    node.core->Handle(CancelHandoff{kTicket.id, 1}, cluster.now_us);
    const int64_t start_us = cluster.now_us;
    cluster.RunUntilIdle(20'000'000);
    pair->RequireQuiet();
    CHECK(CoreCluster::Find<HandoffEnded>(pair->source)->status.code() ==
          absl::StatusCode::kCancelled);
    // A sink that gets no message waits for its source until the limit.
    CHECK(cluster.now_us - start_us < (at_source ? kPeerTimeoutUs + 100'000 : 100'000));
  }
}

TEST_CASE("a black hole at any step is given up within the timeout, resumed or not") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", after step " << step);
      const auto pair = Begin(seed);
      CoreCluster& cluster = pair->cluster;
      for (int i = 0; i < step; ++i) cluster.Step();
      cluster.network.Freeze(pair->sink.link.get());
      const int64_t start_us = cluster.now_us;
      while (pair->source.core->busy() && cluster.now_us < start_us + 20'000'000) {
        cluster.now_us += TransferCore::kTickUs;
        while (cluster.Turn(pair->source)) {
        }
      }
      REQUIRE(cluster.now_us - start_us < kPeerTimeoutUs + 100'000);
      REQUIRE(pair->source.core->n_operations() == 0);
    }
  }
}

TEST_CASE("what swallows the source's words alone is noticed by one of both within the timeout") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", after step " << step);
      const auto pair = Begin(seed);
      CoreCluster& cluster = pair->cluster;
      for (int i = 0; i < step; ++i) cluster.Step();
      cluster.network.Block(pair->source.link.get(), pair->sink.link.get());
      const int64_t start_us = cluster.now_us;
      const auto is_noticed = [&] {
        return CoreCluster::Find<HandoffEnded>(pair->source) != nullptr ||
               CoreCluster::Find<HandoffAborted>(pair->sink) != nullptr;
      };
      while (!is_noticed() && cluster.now_us < start_us + 20'000'000)
        if (!cluster.Step()) cluster.now_us += TransferCore::kTickUs;
      REQUIRE(cluster.now_us - start_us < kPeerTimeoutUs + 100'000);
    }
  }
}

TEST_CASE("every transition of the tables is taken") {
  TransitionCounts counts;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    bool quiet = false;
    for (int step = 0; !quiet; ++step) {
      for (const int end : {0, 1, 2, 3, 4}) {
        CoreCluster cluster(seed);
        NodeOptions options[2] = {CorePair::Options(1, 260), CorePair::Options(2, 260)};
        for (NodeOptions& o : options) o.transitions = &counts;
        CoreNode& source = cluster.Add(options[0], 16, kPlanes);
        CoreNode& sink = cluster.Add(options[1], 16, kPlanes);
        const bool has_room = seed % 4 != 1;
        if (has_room) sink.Lend(16, cluster.now_us);
        source.core->Handle(OpenHandoff{kTicket, 2, sink.link->address()}, cluster.now_us);
        source.core->Handle(
            SendCells{.ticket_id = kTicket.id, .n_planes = 3, .pages = {0, 1, 2, 3, 4}},
            cluster.now_us);
        source.core->Handle(CommitHandoff{kTicket.id, {}}, cluster.now_us);
        for (int i = 0; i < step; ++i) quiet = !cluster.Step();
        if (end == 0) cluster.CutConnections(source);
        if (end == 1) source.core->Handle(CancelHandoff{kTicket.id, 1}, cluster.now_us);
        if (end == 2) sink.core->Handle(CancelHandoff{kTicket.id, 1}, cluster.now_us);
        if (end == 3) cluster.Kill(source);
        // The sink loses the connection before it acknowledges the landed chunk.
        if (end == 4 && !sink.tap.connections().empty())
          sink.core->Handle(MessageArrived{*sink.tap.connections().begin(), "damaged"},
                            cluster.now_us);
        cluster.RunUntilIdle(300'000);
        if (!has_room) sink.Lend(16, cluster.now_us);
        cluster.RunUntilIdle(10'000'000);
      }
    }
  }
  for (const MachineTable* table :
       {&HandoffSourceTable(), &HandoffSinkTable(), &PagePromiseTable(), &ConnectionTable()})
    for (const TransitionRow& row : table->transitions) {
      INFO(table->machine << ": " << table->states[size_t(row.from)].name << " to "
                          << table->states[size_t(row.to)].name);
      CHECK(counts.count(*table, row) > 0);
    }
}

}  // namespace
}  // namespace baton
