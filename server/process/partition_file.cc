#include "server/process/partition_file.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/text_file.h"

namespace baton {
namespace {

constexpr size_t kMaxTableBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const PartitionTable>> ReadPartitionFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxTableBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), "; baton tune MODEL --out FILE writes one"));
  }
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(PartitionTable table, ParsePartitionTable(*text, path));
  return std::make_shared<const PartitionTable>(std::move(table));
}

}  // namespace baton
