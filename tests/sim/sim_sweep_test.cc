// A few requests through two prefill and two decode workers, or relays, also in rounds, through
// three prefill workers and one decode worker, with one disturbance: at each event in turn, of each
// kind. Every stream must be exact and end once, and nothing may be held afterwards.
#include "tests/sim/world.h"

#include <catch2/catch.hpp>

namespace baton::sim {
namespace {

constexpr int kRequests = 3;

Swarm SmallFlow(bool relays, bool in_rounds) {
  Swarm swarm;
  swarm.seed = 189;
  // A relay has three ranks.
  const Role fourth = relays ? Role::kPrefill : Role::kDecode;
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kPrefill, fourth})
    swarm.workers.push_back({.role = role,
                             .pages = 8,
                             .max_batch = 2,
                             .max_step_tokens = 16,
                             .mixed_prefill_tokens = 4,
                             .chunk_tokens = 6});
  swarm.page_tokens = 4;
  swarm.n_layers = 2;
  swarm.chunk_bytes = 64;
  swarm.window_bytes = 128;
  swarm.slab_slots = 2;
  swarm.n_requests = kRequests;
  swarm.max_prompt = 16;
  swarm.max_tokens = 8;
  swarm.stop_percent = 0;
  swarm.router.relay.min_tokens = relays ? 8 : 0;
  swarm.router.relay.max_ranks = in_rounds ? 2 : 3;
  if (in_rounds) swarm.max_slice_tokens = 4;
  swarm.router.relay.min_ranks = 2;
  swarm.router.max_attempts = swarm.router.max_lost_attempts = 1000;
  return swarm;
}

TEST_CASE("one disturbance at any event harms no stream and leaves nothing behind") {
  const auto [relays, in_rounds] =
      GENERATE(table<bool, bool>({{false, false}, {true, false}, {true, true}}));
  Swarm swarm = SmallFlow(relays, in_rounds);
  swarm.stands = true;  // workers send signs of life
  const Outcome undisturbed = RunSwarm(swarm);
  REQUIRE(undisturbed.violation == "");
  REQUIRE(undisturbed.clients.complete == kRequests);
  REQUIRE(undisturbed.faults.handoffs > 0);
  REQUIRE((undisturbed.faults.relays > 0) == relays);
  REQUIRE((undisturbed.faults.relays_in_rounds > 0) == in_rounds);
  using Kind = Disturbance::Kind;
  uint64_t n_runs = 0, attempts = 0;
  for (const Kind kind :
       {Kind::kKill, Kind::kStop, Kind::kPause, Kind::kStand, Kind::kBreakControl, Kind::kIsolate,
        Kind::kSlowLink, Kind::kCutTransfer, Kind::kCancel, Kind::kKillRouter}) {
    const bool of_worker = kind < Kind::kCutTransfer;
    for (int node = 0; node < (of_worker ? 4 : 1); ++node) {
      for (uint64_t at = 0; at <= undisturbed.n_events_of_requests; ++at) {
        const Disturbance disturbance{.kind = kind, .node = node, .at_event = at};
        const Outcome outcome = RunSwarm(swarm, false, &disturbance);
        INFO("kind " << static_cast<int>(kind) << " worker " << node << " at event " << at);
        REQUIRE(outcome.violation == "");
        const ClientCounts& clients = outcome.clients;
        REQUIRE(clients.complete + clients.cancelled + clients.lost == kRequests);
        REQUIRE((clients.lost == 0 || kind == Kind::kKillRouter));
        ++n_runs;
        attempts += outcome.clients.attempts;
      }
    }
  }
  CHECK(n_runs > 1000);
  CHECK(attempts > kRequests * n_runs);  // many runs had to dispatch again
}

}  // namespace
}  // namespace baton::sim
