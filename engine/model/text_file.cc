#include "engine/model/text_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  std::ifstream file(path, std::ios::binary);
  if (!is_file || !file) {
    return absl::NotFoundError(
        absl::StrCat(path, ": ", is_file ? std::strerror(errno) : "no such file"));
  }
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return absl::DataLossError(absl::StrCat(path, ": cannot be read"));
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": longer than the ", max_bytes, " bytes such a file may have"));
  }
  return text;
}

}  // namespace baton
