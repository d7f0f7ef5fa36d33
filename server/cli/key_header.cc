#include "server/cli/key_header.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::map<std::string, std::string>> KeyHeader(const std::string& key_file) {
  if (key_file.empty()) return std::map<std::string, std::string>();
  std::ifstream file(key_file);
  std::string key;
  if (!(file >> key)) {
    return absl::NotFoundError(absl::StrCat("--key-file ", key_file,
                                            " cannot be read, or is empty: its first word is the "
                                            "key, of the scope admin"));
  }
  return std::map<std::string, std::string>{{"Authorization", "Bearer " + key}};
}

}  // namespace baton
