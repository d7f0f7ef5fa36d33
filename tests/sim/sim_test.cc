// The simulation of every CI run. baton_sim runs more seeds, and one seed with a trace.
#include <iostream>

#include "common/log.h"
#include "tests/sim/seeds.h"
#include "tests/sim/tables.h"

#include <catch2/catch.hpp>

namespace baton::sim {
namespace {

TEST_CASE("seeds of the whole cluster keep every promise") {
  SetLog(LogLevel::kError, "sim");
  std::string first;
  const SeedReport report =
      RunSeeds({.first = 1,
                .last = 6000,
                .threads = 2,
                .twice_every = 10,
                .began = {},
                .violated = [&first](const Outcome& outcome) {
                  if (first.empty())
                    first = absl::StrFormat("seed %d: %s", outcome.seed, outcome.violation);
                }});
  std::cout << report.ToString();
  INFO(first);
  CHECK(report.n_violations == 0);
  // The runs met the events that they are for.
  const Outcome& sum = report.sum;
  CHECK(sum.n_events >= 2000 * report.n_seeds);
  for (const uint64_t count :
       {sum.faults.stops, sum.faults.router_kills, sum.faults.releases, sum.faults.kills,
        sum.faults.pauses, sum.faults.breaks, sum.faults.cuts, sum.faults.partitions,
        sum.faults.clogs, sum.faults.crc_errors, sum.clients.cancelled})
    CHECK(count > 1000);
  CHECK(sum.faults.stands > 1000);
  CHECK(sum.faults.stands_checked > 150);
  CHECK(sum.faults.relays > 1000);
  CHECK(sum.faults.ranks_replaced > 500);
  CHECK(sum.faults.sinks_replaced > 500);
  CHECK(sum.faults.replaced_in_rounds > 300);
  CHECK(sum.faults.relays_left > 100);
  CHECK(sum.faults.relays_in_rounds > 1000);
  CHECK(sum.faults.slice_blocks > 100'000);
  CHECK(sum.faults.slice_wait_seconds > 50);
  CHECK(sum.faults.trimmed_pages > 10'000);
  CHECK(sum.faults.held_pages > 1'000);
  CHECK(sum.faults.lost_pages > 10'000);
  CHECK(TakenLessThan(100, sum.transitions) == "");
  CHECK(sum.clients.complete > 30'000);
  CHECK(sum.clients.attempts > sum.clients.submitted + 5'000);
}

TEST_CASE("seeds that once broke a promise") {
  for (const uint64_t seed : {5554, 11275, 11787, 14080, 14290, 19927, 30156, 44178, 58423}) {
    INFO(seed);
    CHECK(RunSeed(seed).violation == "");
  }
}

}  // namespace
}  // namespace baton::sim
