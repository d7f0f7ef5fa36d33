#include "server/process/socket_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<SocketFolder> SocketFolder::Make() {
  std::string path = "/tmp/baton-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError(
        absl::StrCat("no folder for a Unix socket can be made in /tmp: ", std::strerror(errno)));
  return SocketFolder(std::move(path));
}

SocketFolder::~SocketFolder() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

}  // namespace baton
