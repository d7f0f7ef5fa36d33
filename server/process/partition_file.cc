#include "server/process/partition_file.h"

#include <utility>

#include "engine/model/text_file.h"

namespace baton {
namespace {

constexpr size_t kMaxTableBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const PartitionTable>> ReadPartitionFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTableBytes));
  ASSIGN_OR_RETURN(PartitionTable table, ParsePartitionTable(text, path));
  return std::make_shared<const PartitionTable>(std::move(table));
}

}  // namespace baton
