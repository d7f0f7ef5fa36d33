// What the user says of relays: which prompts several workers prefill, and how many. Plain data;
// set at the start of the router's process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/settings.h"
#include "planner/partition_table.h"
#include "planner/push_choice.h"

namespace baton {

// Slices by the closed form, by a tuned table, or even ones (both for reproduction).
enum class PartitionMode { kClosed, kTable, kEven };

// For comparisons: what the planner decides better by itself.
struct RelayLab {
  int min_ranks = 1;  // more than one: a relay wherever possible, whatever is predicted
  std::optional<RelayPush> push{};  // kAll or kTail; nothing: what is predicted to be sooner
  PartitionMode partition = PartitionMode::kClosed;
  // Of kTable, read at start from the file of lab.partition_table: no relay of ranks it lacks.
  std::shared_ptr<const PartitionTable> table{};
};

struct RelayRules {
  // Prompts (after a failover: with the tokens so far) of so many tokens and more are prefilled by
  // several workers, the ranks of a relay, where that is predicted to be sooner; 0: none.
  int min_tokens = 0;
  int max_ranks = 2;
  RelayLab lab{};
};

// router.relay_*, and lab.relay_*, lab.partition.
void DeclareRelayRules(RelayRules* rules, Settings* settings);

}  // namespace baton
