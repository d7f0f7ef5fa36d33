// One relay over three of four prefill workers, in one round or in several, that loses a worker at
// each of its events in turn: its tokens are the right ones, and of the prompt nothing is computed
// twice but the lost worker's slices.
#include "sim/world.h"

#include <catch2/catch.hpp>

namespace baton::sim {
namespace {

constexpr int kPrompt = 46, kTail = 14;  // tokens of all of it, of the tail's slices

Swarm OneRelay(int max_slice_tokens, RelayPush push) {
  Swarm swarm;
  swarm.seed = 11;
  for (const Role role : {Role::kPrefill, Role::kPrefill, Role::kPrefill, Role::kPrefill,
                          Role::kDecode, Role::kDecode})
    swarm.workers.push_back({.role = role,
                             .pages = 16,
                             .max_batch = 2,
                             .max_step_tokens = 16,
                             .mixed_prefill_tokens = 4,
                             .chunk_tokens = 6});
  swarm.page_tokens = 4;
  swarm.n_layers = 3;
  swarm.chunk_bytes = 64;
  swarm.window_bytes = 128;
  swarm.slab_slots = 2;
  swarm.n_requests = 1;
  swarm.long_request = 0;
  swarm.max_prompt = kPrompt;
  swarm.max_tokens = 4;
  swarm.stop_percent = 0;
  swarm.segment_keys = 4;
  swarm.max_slice_tokens = max_slice_tokens;
  swarm.router.relay_min_tokens = 8;
  swarm.router.relay_max_ranks = swarm.router.relay_min_ranks = 3;
  swarm.router.relay_push = push;
  swarm.router.max_attempts = swarm.router.max_lost_attempts = 1000;
  return swarm;
}

TEST_CASE("of a relay that loses a worker nothing is computed twice but the lost slices") {
  const int max_slice_tokens = GENERATE(24, 12, 8);
  const Swarm swarm = OneRelay(max_slice_tokens, GENERATE(RelayPush::kAll, RelayPush::kTail));
  const Outcome undisturbed = RunSwarm(swarm);
  REQUIRE(undisturbed.violation == "");
  REQUIRE(undisturbed.faults.relays == 1);
  REQUIRE(undisturbed.faults.relays_in_rounds == (max_slice_tokens < kPrompt / 3 ? 1 : 0));
  REQUIRE(undisturbed.faults.prefill_tokens == kPrompt);
  uint64_t ranks_replaced = 0, sinks_replaced = 0, nothing_twice = 0, tail_twice = 0;
  for (int node = 0; node < static_cast<int>(swarm.workers.size()); ++node) {
    for (uint64_t at = 0; at <= undisturbed.n_events_of_requests; ++at) {
      const Disturbance disturbance{.kind = Disturbance::Kind::kKill, .node = node, .at_event = at};
      const Outcome outcome = RunSwarm(swarm, false, &disturbance);
      INFO("worker " << node << " killed at event " << at);
      REQUIRE(outcome.violation == "");
      REQUIRE(outcome.clients.complete == 1);
      const FaultCounts& faults = outcome.faults;
      ranks_replaced += faults.ranks_replaced;
      sinks_replaced += faults.sinks_replaced;
      if (faults.ranks_replaced + faults.sinks_replaced == 0) continue;
      // What the others had computed before, and what they and the stand-in did then. A tail that
      // was done, its token still on the way, begins anew.
      const uint64_t computed = faults.prefill_tokens;
      REQUIRE((computed == kPrompt || computed == kPrompt + kTail));
      ++(computed == kPrompt ? nothing_twice : tail_twice);
    }
  }
  CHECK(ranks_replaced > 100);
  CHECK(sinks_replaced > 50);
  CHECK(nothing_twice > 5 * tail_twice);
}

}  // namespace
}  // namespace baton::sim
