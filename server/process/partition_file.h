// Reads a file of `baton tune` (planner/partition_table.h), for the roles that use it.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "planner/partition_table.h"

namespace baton {

// Error: names the file, and what in it is missing, too long or wrong.
absl::StatusOr<std::shared_ptr<const PartitionTable>> ReadPartitionFile(const std::string& path);

}  // namespace baton
