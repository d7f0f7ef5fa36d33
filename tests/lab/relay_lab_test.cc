// Plans of relays whose slices are found in another way than the planner's.
#include "lab/relay_lab.h"

#include <memory>
#include <utility>
#include <vector>

#include "planner/relay_plan.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Returns the tokens of each slice of a prompt of 4,096 tokens on idle workers.
std::vector<int> Slices(const RelayLab& lab, int ranks) {
  PrefillCost cost;  // a 1B shape on two cores
  cost.n_layers = 16;
  cost.token = 3e-4;
  cost.pair = 3.3e-8;
  cost.extra_tokens = 8;
  cost.kv_bytes = 2048;
  std::vector<OfferedWorker> idle(4);
  for (size_t i = 0; i < idle.size(); ++i) idle[i] = {.place = i, .link = {2e9, 1e-4}};
  const RelayRules rules{.min_ranks = ranks, .max_ranks = ranks, .sharing = SharingOf(lab)};
  std::vector<int> tokens;
  int before = 0;
  for (const RelaySlice& slice :
       PlanRelay(cost, PlanRecord(), idle, {.tokens = 4096, .rules = rules}).slices)
    tokens.push_back(slice.end - std::exchange(before, slice.end));
  return tokens;
}

TEST_CASE("slices by a table, or even ones, where that is asked for") {
  PartitionTable table;
  table.of_ranks[2] = {{4096, {.75, .25}}};
  const RelayLab by_table{.partition = PartitionMode::kTable,
                          .table = std::make_shared<const PartitionTable>(table)};
  CHECK(Slices(by_table, 2) == std::vector<int>{3072, 1024});
  CHECK(Slices(by_table, 4) == std::vector<int>{4096});  // the table has no entry
  CHECK(Slices({.partition = PartitionMode::kEven}, 4) == std::vector<int>(4, 1024));
  const std::vector<int> closed = Slices({.partition = PartitionMode::kClosed}, 2);
  CHECK(closed[0] > closed[1]);
  CHECK(closed[0] < 3072);
}

}  // namespace
}  // namespace baton
