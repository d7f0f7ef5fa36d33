// One relay, in one round or in several, that loses a worker at each of its events in turn, with
// and without another worker as replacement. Its tokens must be right, and only the lost worker's
// slices may be computed twice.
#include "common/log.h"
#include "lab/relay_lab.h"
#include "tests/sim/world.h"

#include <catch2/catch.hpp>

namespace baton::sim {
namespace {

constexpr int kPrompt = 46, kTail = 14;  // tokens: whole prompt, a tail of three ranks

Swarm OneRelay(uint64_t seed, int n_ranks, int n_spare, int max_slice_tokens, RelayPush push) {
  Swarm swarm;
  swarm.seed = seed;
  std::vector<Role> roles(static_cast<size_t>(n_ranks + n_spare), Role::kPrefill);
  roles.insert(roles.end(), 2, Role::kDecode);
  for (const Role role : roles)
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
  swarm.grammar_percent = 0;
  swarm.segment_keys = 4;
  swarm.max_slice_tokens = max_slice_tokens;
  swarm.router.relay.min_tokens = 8;
  swarm.router.local = false;  // ranks are prefill workers, although the decode worker is idle
  swarm.router.relay.max_ranks = swarm.router.relay.min_ranks = n_ranks;
  swarm.router.relay.sharing = SharingOf({.push = push});
  swarm.router.max_attempts = swarm.router.max_lost_attempts = 1000;
  return swarm;
}

TEST_CASE("of a relay that loses a worker nothing is computed twice but the lost slices") {
  SetLog(LogLevel::kError, "sim");
  const int max_slice_tokens = GENERATE(24, 12, 8);
  const Swarm swarm =
      OneRelay(11, 3, 1, max_slice_tokens, GENERATE(RelayPush::kAll, RelayPush::kTail));
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
      // The count includes what the other ranks had computed before and what they and the
      // replacement computed then. A finished tail whose token is still under way starts again.
      const uint64_t computed = faults.prefill_tokens;
      REQUIRE((computed == kPrompt || computed == kPrompt + kTail));
      ++(computed == kPrompt ? nothing_twice : tail_twice);
    }
  }
  CHECK(ranks_replaced > 100);
  CHECK(sinks_replaced > 50);
  CHECK(nothing_twice > 5 * tail_twice);
}

// One of the remaining ranks continues with the lost slices, even if it is the only one.
TEST_CASE("only the lost slices are computed again in a relay that no new worker joins") {
  SetLog(LogLevel::kError, "sim");
  // One round with two ranks, with two, with three; one with three ranks, with two.
  const auto [seed, n_ranks, max_slice_tokens, push] =
      GENERATE(table<uint64_t, int, int, RelayPush>({{11, 2, 24, RelayPush::kAll},
                                                     {11, 2, 12, RelayPush::kTail},
                                                     {11, 2, 8, RelayPush::kAll},
                                                     {1, 3, 24, RelayPush::kTail},
                                                     {1, 3, 12, RelayPush::kAll}}));
  const Swarm swarm = OneRelay(seed, n_ranks, 0, max_slice_tokens, push);
  const Outcome undisturbed = RunSwarm(swarm);
  REQUIRE(undisturbed.violation == "");
  REQUIRE(undisturbed.faults.relays == 1);
  REQUIRE(undisturbed.faults.prefill_tokens == kPrompt);
  uint64_t ranks_replaced = 0, tail_twice = 0;
  for (int node = 0; node < n_ranks; ++node) {
    for (uint64_t at = 0; at <= undisturbed.n_events_of_requests; ++at) {
      const Disturbance disturbance{.kind = Disturbance::Kind::kKill, .node = node, .at_event = at};
      const Outcome outcome = RunSwarm(swarm, false, &disturbance);
      INFO("worker " << node << " killed at event " << at);
      REQUIRE(outcome.violation == "");
      REQUIRE(outcome.clients.complete == 1);
      const FaultCounts& faults = outcome.faults;
      ranks_replaced += faults.ranks_replaced;
      // Less, if KV of the lost slices had arrived at the rank that continues. A finished tail
      // whose token is still under way starts again.
      const uint64_t computed = faults.prefill_tokens;
      REQUIRE(computed <= kPrompt + kTail);
      tail_twice += faults.ranks_replaced > 0 && computed > kPrompt;
    }
  }
  CHECK(ranks_replaced > 100);
  CHECK(ranks_replaced > 20 * tail_twice);
}

}  // namespace
}  // namespace baton::sim
