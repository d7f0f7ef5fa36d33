// Inflows with one disturbance, at every step of their life, awaited early or late: the engine gets
// exactly one last event, and nothing writes its pages after that.
#include <memory>

#include "tests/kvtransfer/inflow_pair.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using absl::StatusCode;

constexpr int64_t kPeerTimeoutUs = 4'000'000;
constexpr uint64_t kSeeds = 2;

enum class Trouble { kNone, kCut, kCancelAtTail, kCancelAtHead, kCancelBoth, kKillHead, kShutDown };

struct Plan {
  uint64_t seed = 0;
  int at_step = 0;  // step of the disturbance
  Trouble trouble = Trouble::kNone;
  int await_step = 0;  // step at which the engine awaits; at the latest when nothing else happens

  int64_t chunk_bytes() const { return seed % 2 == 0 ? 260 : 400; }
};

void Disturb(InflowPair& pair, Trouble trouble) {
  const CancelHandoff cancel{pair.ticket.id, 1};
  const int64_t now_us = pair.cluster.now_us;
  if (trouble == Trouble::kCut) pair.cluster.CutConnections(pair.source);
  if (trouble == Trouble::kCancelAtHead || trouble == Trouble::kCancelBoth)
    pair.source.core->Handle(cancel, now_us);
  if (trouble == Trouble::kCancelAtTail || trouble == Trouble::kCancelBoth)
    pair.sink.core->Handle(cancel, now_us);
  if (trouble == Trouble::kKillHead) pair.cluster.Kill(pair.source);
  if (trouble == Trouble::kShutDown) pair.sink.core->ShutDown(now_us);
  pair.Look();
}

// Plays the plan until nothing moves without time, then until both ends are idle. Returns the
// number of steps.
int Play(InflowPair& pair, const Plan& plan) {
  pair.OpenSendCommit();
  bool disturbed = plan.trouble == Trouble::kNone;
  int n_steps = 0;
  for (bool moved = true; moved || !disturbed || !pair.awaited; ++n_steps) {
    if (!pair.awaited && (n_steps >= plan.await_step || !moved)) pair.Await();
    if (!disturbed && n_steps >= plan.at_step) {
      Disturb(pair, plan.trouble);
      disturbed = true;
    }
    moved = pair.Step();
  }
  // Without an OPEN there is nothing to wait for.
  pair.RunUntilIdle(pair.open_seen ? 20'000'000 : 1'000'000);
  if (!pair.over()) {
    // The engine keeps waiting, for as long as it wants, only if no OPEN came.
    REQUIRE_FALSE(pair.open_seen);
    pair.CancelAtSink();
    REQUIRE(pair.failed->code() == StatusCode::kCancelled);
  }
  pair.RequireOver();
  return n_steps;
}

// Returns the number of steps of an undisturbed inflow.
int CountSteps(uint64_t seed) {
  const Plan plan{.seed = seed};
  InflowPair pair(seed, plan.chunk_bytes());
  const int n_steps = Play(pair, plan);
  REQUIRE(pair.arrived());
  REQUIRE(pair.Ended().ok());
  return n_steps;
}

// Plays every step of every seed, awaited at the start, half-way to the disturbance, after it, and
// last. check(pair, plan) runs after each.
template <typename Check>
void Sweep(Trouble trouble, const Check& check) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const int n_steps = CountSteps(seed);
    for (int step = 0; step <= n_steps; ++step)
      for (const int await_step : {0, step / 2, step, step + 5, 10'000}) {
        const Plan plan{
            .seed = seed, .at_step = step, .trouble = trouble, .await_step = await_step};
        INFO("seed " << seed << ", step " << step << " of " << n_steps << ", awaited at step "
                     << await_step);
        InflowPair pair(seed, plan.chunk_bytes());
        const int64_t start_us = pair.cluster.now_us;
        Play(pair, plan);
        REQUIRE(pair.cluster.now_us - start_us < 2 * kPeerTimeoutUs);
        check(pair, plan);
      }
  }
}

TEST_CASE("inflow: cancelled at any step by either end or both, it ends once and without a timer") {
  const Trouble who =
      GENERATE(Trouble::kCancelAtTail, Trouble::kCancelAtHead, Trouble::kCancelBoth);
  int n_arrived = 0, n_failed = 0;
  Sweep(who, [&](InflowPair& pair, const Plan&) {
    if (pair.open_seen) REQUIRE(pair.cluster.now_us < 1'100'000);  // the run began at one second
    n_arrived += pair.arrived();
    n_failed += pair.failed.has_value();
    if (pair.failed) REQUIRE(pair.failed->code() == StatusCode::kCancelled);
    if (pair.Ended().ok()) REQUIRE(pair.arrived());
  });
  CHECK(n_arrived > 0);
  CHECK(n_failed > n_arrived / 10);
}

TEST_CASE("inflow: its connection cut at any step, it goes on with what is missing") {
  int n_resumed = 0;
  Sweep(Trouble::kCut, [&](InflowPair& pair, const Plan&) {
    REQUIRE(pair.arrived());
    REQUIRE(pair.Ended().ok());
    REQUIRE(pair.sink.core->counters().bytes_received == uint64_t(pair.kKvBytes));  // once
    REQUIRE(pair.source.core->links().links().at(0).bytes[size_t(Traffic::kChain)] ==
            uint64_t(pair.kKvBytes));
    const TransferCounters& sent = pair.source.core->counters();
    REQUIRE(sent.bytes_sent <= uint64_t(pair.kKvBytes) + 1'000);  // at most a window under way
    n_resumed += sent.handoffs_resumed > 0;
    int n_promised = 0;
    for (const TransferEvent& event : pair.source.events)
      n_promised += std::holds_alternative<HandoffPromised>(event);
    REQUIRE(n_promised == 1);
  });
  CHECK(n_resumed > 100);
}

TEST_CASE("inflow: awaited while its connection is down, it is promised over the next one") {
  InflowPair pair(3);
  pair.OpenSendCommit();
  pair.RunUntilQuiet();
  pair.cluster.CutConnections(pair.source);
  while (pair.sink.core->counters().connections_lost == 0) pair.cluster.Turn(pair.sink);
  pair.Await();
  CHECK(CoreCluster::Find<HandoffPromised>(pair.source) == nullptr);
  pair.RunUntilIdle(1'000'000);
  CHECK(pair.arrived());
  CHECK(pair.Ended().ok());
  pair.RequireOver();
}

TEST_CASE("inflow: its head killed at any step, it fails within the bound or had arrived") {
  int n_arrived = 0, n_failed = 0;
  Sweep(Trouble::kKillHead, [&](InflowPair& pair, const Plan&) {
    n_arrived += pair.arrived();
    n_failed += pair.failed.has_value();
    if (pair.failed && pair.open_seen) REQUIRE(pair.failed->code() == StatusCode::kUnavailable);
  });
  CHECK(n_arrived > 0);
  CHECK(n_failed > 100);
}

TEST_CASE("inflow: its tail shut down at any step, it fails within the drain or had arrived") {
  int n_failed = 0;
  Sweep(Trouble::kShutDown, [&](InflowPair& pair, const Plan&) {
    n_failed += pair.failed.has_value();
    if (pair.failed) REQUIRE(pair.failed->code() == StatusCode::kUnavailable);
    if (pair.Ended().ok()) REQUIRE(pair.arrived());
  });
  CHECK(n_failed > 100);
}

TEST_CASE("inflow: damaged chunks are sent again, and given up when that does not help") {
  uint64_t n_damaged = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Plan plan{.seed = seed, .await_step = int(seed)};
    InflowPair pair(seed, plan.chunk_bytes());
    pair.cluster.network.set_faults({.corrupt_payload = 0.2});
    Play(pair, plan);
    n_damaged += Refused(pair.sink.core->counters(), ChunkRefusal::kPayload);
    REQUIRE(pair.arrived() == pair.Ended().ok());
    if (pair.failed) REQUIRE(pair.failed->code() == StatusCode::kDataLoss);
  }
  CHECK(n_damaged > 40);
  InflowPair hopeless(1);
  hopeless.cluster.network.set_faults({.corrupt_payload = 1});
  Play(hopeless, {.seed = 1});
  REQUIRE(hopeless.failed.has_value());
  CHECK(hopeless.failed->code() == StatusCode::kDataLoss);
}

TEST_CASE("inflow: the last word waits for a receive that may still write") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    InflowPair pair(seed);
    pair.Await();
    pair.OpenSendCommit();
    while (pair.posted.empty() && pair.Step()) {
    }
    REQUIRE_FALSE(pair.posted.empty());
    pair.CancelAtSink();
    REQUIRE_FALSE(pair.over());
    while (!pair.posted.empty()) REQUIRE(pair.Step());
    REQUIRE(pair.failed.has_value());
    pair.RunUntilQuiet();
    pair.RequireOver();
  }
}

}  // namespace
}  // namespace baton
