// A promise that three sources fill, with one disturbance at every step of its life: the decode
// worker gets one end, so do all sources, and no returned page is written.
#include "tests/kvtransfer/parts_rig.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using absl::StatusCode;

enum class Trouble {
  kNone,
  kCutTail,
  kCutHead,
  kCutAll,
  kCancelAtSink,
  kCancelAtTail,
  kCancelAtHead,
  kKillTail,
  kKillHead,
  kShutDown
};

void Disturb(PartsRig& rig, Trouble trouble) {
  PartsRig::Source &tail = rig.sources[0], &head = rig.sources[1];
  const auto kill = [&rig](PartsRig::Source& source) {
    rig.cluster.Kill(*source.node);
    source.node = nullptr;
  };
  if (trouble == Trouble::kCutTail) rig.cluster.CutConnections(*tail.node);
  if (trouble == Trouble::kCutHead) rig.cluster.CutConnections(*head.node);
  if (trouble == Trouble::kCutAll) rig.cluster.CutConnections(rig.sink);
  if (trouble == Trouble::kCancelAtSink) rig.Cancel(rig.sink, tail.ticket);
  if (trouble == Trouble::kCancelAtTail) rig.Cancel(*tail.node, tail.ticket);
  if (trouble == Trouble::kCancelAtHead) rig.Cancel(*head.node, head.ticket);
  if (trouble == Trouble::kKillTail) kill(tail);
  if (trouble == Trouble::kKillHead) kill(head);
  if (trouble == Trouble::kShutDown) rig.sink.core->ShutDown(rig.cluster.now_us);
  rig.Look();
}

// Returns the number of steps until nothing moved without time.
int Play(PartsRig& rig, Trouble trouble, int at_step) {
  rig.Lend();
  for (const size_t n : {1, 0, 2}) rig.OpenSendCommit(n);
  bool disturbed = trouble == Trouble::kNone;
  int n_steps = 0;
  for (bool moved = true; moved || !disturbed; ++n_steps) {
    if (!disturbed && n_steps >= at_step) {
      Disturb(rig, trouble);
      disturbed = true;
    }
    moved = rig.Step();
  }
  rig.RunUntilIdle(1'000'000);
  return n_steps;
}

template <typename Check>
void Sweep(Trouble trouble, const Check& check) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    PartsRig calm(seed);
    const int n_steps = Play(calm, Trouble::kNone, 0);
    REQUIRE(calm.arrived);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", step " << step << " of " << n_steps);
      PartsRig rig(seed);
      Play(rig, trouble, step);
      check(rig);
      // The owner of the request cancels what waits for a dead process.
      rig.Cancel(rig.sink, rig.sources[0].ticket);
      rig.RunUntilIdle(20'000'000);
      rig.RequireOver();
      for (const size_t n : {0, 1, 2})
        REQUIRE(rig.Ended(n).has_value() == (rig.sources[n].node != nullptr));
      int n_ok = 0;
      for (const size_t n : {0, 1, 2}) n_ok += rig.Ended(n).has_value() && rig.Ended(n)->ok();
      if (n_ok == 3) REQUIRE(rig.arrived);
    }
  }
}

TEST_CASE("parts: connections cut at any step, each goes on with what is missing") {
  const Trouble trouble = GENERATE(Trouble::kCutTail, Trouble::kCutHead, Trouble::kCutAll);
  uint64_t n_resumed = 0;
  Sweep(trouble, [&](const PartsRig& rig) {
    REQUIRE(rig.arrived);
    REQUIRE(rig.sink.core->counters().bytes_received == uint64_t(PartsRig::kKvBytes));  // once
    for (const PartsRig::Source& source : rig.sources) {
      n_resumed += source.node->core->counters().handoffs_resumed;
      REQUIRE(source.node->core->links().links().at(0).bytes ==
              std::array<uint64_t, kTraffics>{0, uint64_t(source.n_pages) * 400});
    }
  });
  CHECK(n_resumed > 50);
}

TEST_CASE("parts: cancelled at any step by any of them, all end without a timer") {
  const Trouble trouble =
      GENERATE(Trouble::kCancelAtSink, Trouble::kCancelAtTail, Trouble::kCancelAtHead);
  int n_arrived = 0, n_aborted = 0;
  Sweep(trouble, [&](const PartsRig& rig) {
    n_arrived += rig.arrived;
    n_aborted += rig.aborted.has_value();
    if (rig.aborted) REQUIRE(rig.aborted->code() == StatusCode::kCancelled);
    const size_t by = trouble == Trouble::kCancelAtHead ? 1 : 0;
    if (trouble != Trouble::kCancelAtSink && !rig.sources[by].open_seen) return;
    for (const size_t n : {0, 1, 2}) REQUIRE(rig.Ended(n).has_value());
  });
  CHECK(n_arrived > 0);
  CHECK(n_aborted > 50);
}

TEST_CASE("parts: a source killed at any step, all fail or the handoff had arrived") {
  const Trouble trouble = GENERATE(Trouble::kKillTail, Trouble::kKillHead);
  int n_aborted = 0, n_arrived = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    PartsRig calm(seed);
    const int n_steps = Play(calm, Trouble::kNone, 0);
    for (int step = 0; step <= n_steps; ++step) {
      INFO("seed " << seed << ", step " << step);
      PartsRig rig(seed);
      Play(rig, trouble, step);
      rig.RunUntilIdle(20'000'000);
      const PartsRig::Source& killed = rig.sources[trouble == Trouble::kKillTail ? 0 : 1];
      n_aborted += rig.aborted.has_value();
      n_arrived += rig.arrived;
      if (killed.open_seen) {  // the sink notices the loss itself
        rig.RequireOver();
        if (rig.aborted) REQUIRE(rig.aborted->code() == StatusCode::kUnavailable);
      }
    }
  }
  CHECK(n_aborted > 50);
  CHECK(n_arrived > 0);
}

TEST_CASE("parts: the sink shut down at any step, all fail within the drain") {
  int n_aborted = 0;
  Sweep(Trouble::kShutDown, [&](const PartsRig& rig) { n_aborted += rig.aborted.has_value(); });
  CHECK(n_aborted > 50);
}

TEST_CASE("parts: damaged chunks are sent again") {
  uint64_t n_damaged = 0, n_arrived = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    PartsRig rig(seed);
    rig.cluster.network.set_faults({.corrupt_payload = 0.2});
    Play(rig, Trouble::kNone, 0);
    rig.RunUntilIdle(20'000'000);
    rig.RequireOver();
    n_damaged += Refused(rig.sink.core->counters(), ChunkRefusal::kPayload);
    n_arrived += rig.arrived;
    if (rig.aborted) REQUIRE(rig.aborted->code() == StatusCode::kDataLoss);
  }
  CHECK(n_damaged > 60);
  CHECK(n_arrived > 50);
}

}  // namespace
}  // namespace baton
