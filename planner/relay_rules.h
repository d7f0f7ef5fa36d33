// Rules of relays: which prompts several workers prefill, and how many workers. Plain data, set at
// the start of the router's process.
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

// Choices for comparisons only; the planner decides better by itself.
struct RelayLab {
  int min_ranks = 1;                // above 1: a relay wherever possible, whatever is predicted
  std::optional<RelayPush> push{};  // kAll or kTail; empty: whichever is predicted to be sooner
  PartitionMode partition = PartitionMode::kClosed;
  // Table for kTable, read at start from the file of lab.partition_table. A number of ranks that it
  // lacks makes no relay.
  std::shared_ptr<const PartitionTable> table{};
};

struct RelayRules {
  // Prompts (after a failover: with the tokens so far) of so many tokens and more are prefilled by
  // several workers, the ranks of a relay, where that is predicted to be sooner; 0: none.
  int min_tokens = 0;
  int max_ranks = 2;
  RelayLab lab{};
};

// Declares router.relay_*, lab.relay_* and lab.partition.
void DeclareRelayRules(RelayRules* rules, Settings* settings);

}  // namespace baton
