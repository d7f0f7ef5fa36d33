// Reads a file of `baton tune` (planner/partition_table.h), for the roles that use it. Any thread.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "planner/partition_table.h"

namespace baton {

// NotFound: there is no such file. InvalidArgument: longer than 1 MiB, or no valid table. DataLoss:
// reading failed. Errors name the file, and what in it is missing or wrong.
absl::StatusOr<std::shared_ptr<const PartitionTable>> ReadPartitionFile(const std::string& path);

}  // namespace baton
