// Relays on and off on a real trace, from workers that are mostly idle to more than they can do, on
// virtual time: the planner's choices are better or no worse at every load.
#include "sim/replay.h"

#include "prefill_worker/hash_backend.h"

#include <catch2/catch.hpp>  // last

namespace baton::sim {
namespace {

struct Pair {
  ReplayResult off, on;
};

// The Mooncake conversation trace, lengths / 32, arrivals stretched by `time_scale`.
Pair Both(double time_scale, int prefill_workers) {
  TraceOptions trace;
  trace.path = BATON_SOURCE_DIR "/bench/traces/mooncake_conversation_400.jsonl";
  trace.n_requests = 200;
  trace.length_scale = 1.0 / 32;
  trace.time_scale = time_scale;
  trace.spread_s = 3;
  trace.vocab = HashBackend::kVocab;
  const auto requests = ReadTrace(trace);
  REQUIRE(requests.ok());
  ReplayCluster cluster{.prefill_workers = prefill_workers};
  Pair both;
  both.off = Replay(*requests, cluster);
  cluster.router.relay_min_tokens = 256;
  both.on = Replay(*requests, cluster);
  for (const ReplayResult* result : {&both.off, &both.on}) {
    INFO(result->violation);
    REQUIRE(result->violation.empty());
    REQUIRE(result->ttfts.size() == 200);
  }
  CHECK(both.off.relays == 0);
  return both;
}

TEST_CASE("at low load relays bring the first token sooner") {
  const Pair both = Both(1.5, 2);
  CHECK(both.on.relays >= 20);
  CHECK(both.on.mean() < 0.85 * both.off.mean());
  CHECK(both.on.Percentile(99) < both.off.Percentile(99));
}

TEST_CASE("near saturation they are no worse, neither on average nor for the last percent") {
  const Pair both = Both(0.6, 2);
  CHECK(both.on.relays > 0);
  CHECK(both.on.mean() < both.off.mean());
  CHECK(both.on.Percentile(99) < 1.02 * both.off.Percentile(99));
}

// The queues grow to the end, and what is served in which order decides who waits how long.
TEST_CASE("where more comes than workers can do, few prompts are shared and nothing is lost") {
  const Pair both = Both(0.3, 2);
  CHECK(both.on.relays <= 20);
  CHECK(both.on.mean() < 1.05 * both.off.mean());
  CHECK(both.on.Percentile(99) < 1.1 * both.off.Percentile(99));
}

}  // namespace
}  // namespace baton::sim
