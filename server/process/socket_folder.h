// A folder for the sockets of one cluster, which its own user alone may enter: made by the
// supervisor below /tmp and removed at its end. One thread.
#pragma once

#include <string>
#include <utility>

#include "common/status.h"

namespace baton {

class SocketFolder {
 public:
  // Makes a folder with a name that nobody can foresee, mode 0700. Unavailable: /tmp cannot be
  // written.
  static absl::StatusOr<SocketFolder> Make();
  ~SocketFolder();  // removes it, with the socket that a killed process may have left
  SocketFolder(SocketFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  SocketFolder& operator=(SocketFolder&&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit SocketFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

}  // namespace baton
