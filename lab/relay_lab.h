// Sharing of relays for comparisons only; the planner decides better by itself. Plain data, set at
// the start of the router's process.
#pragma once

#include <memory>
#include <optional>

#include "planner/relay_sharing.h"

namespace baton {

// Slices by the closed form, by a tuned table, or even ones (both for reproduction).
enum class PartitionMode { kClosed, kTable, kEven };

struct RelayLab {
  std::optional<RelayPush> push{};  // kAll or kTail; empty: whichever is predicted to be sooner
  PartitionMode partition = PartitionMode::kClosed;
  // For kTable, never null then. A number of ranks that it lacks makes no relay.
  std::shared_ptr<const PartitionTable> table{};
};

std::shared_ptr<const RelaySharing> SharingOf(const RelayLab& lab);

}  // namespace baton
