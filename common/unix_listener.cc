#include "common/unix_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// The path of a listener, and the setting it comes from.
struct Place {
  const std::string& path;
  const char* setting;
};

absl::Status Wrong(const Place& place, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(place.setting, ": ", place.path, " ", what));
}

absl::Status Failed(const Place& place) {
  return absl::UnavailableError(
      absl::StrCat(place.setting, ": cannot listen on ", place.path, ": ", std::strerror(errno),
                   "; choose another path, in a folder that this user may write"));
}

// Removes what a server left that was killed.
absl::Status RemoveStale(const Place& place, const sockaddr_un& address) {
  const char* const path = place.path.c_str();
  struct stat info {};
  if (::lstat(path, &info) != 0) return errno == ENOENT ? absl::OkStatus() : Failed(place);
  if (!S_ISSOCK(info.st_mode))
    return Wrong(place, "is there already and is no socket: choose another path, or remove it");
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int result =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                         : errno;
  ::close(probe);
  if (result != ECONNREFUSED)
    return absl::UnavailableError(
        absl::StrCat(place.setting, ": the socket is in use: somebody listens on ", place.path,
                     "; end the server that does, or choose another path"));
  return ::unlink(path) == 0 ? absl::OkStatus() : Failed(place);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Listen(const std::string& path,
                                                                   mode_t mode,
                                                                   const char* setting) {
  const Place place{path, setting};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Wrong(place, absl::StrCat("is too long for a socket: at most ",
                                     sizeof address.sun_path - 1, " bytes"));
  std::memcpy(address.sun_path, path.data(), path.size());
  RETURN_IF_ERROR(RemoveStale(place, address));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  std::unique_ptr<UnixListener> listener(new UnixListener(path, socket));
  // The mode is right before anybody can connect, which is from listen on.
  struct stat info {};
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), mode) != 0 || ::lstat(path.c_str(), &info) != 0 ||
      ::listen(socket, SOMAXCONN) != 0)
    return Failed(place);
  listener->device_ = info.st_dev;
  listener->inode_ = info.st_ino;
  return listener;
}

UnixListener::~UnixListener() {
  if (socket_ >= 0) ::close(socket_);
  struct stat info {};
  if (inode_ != 0 && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ &&
      info.st_ino == inode_)
    ::unlink(path_.c_str());
}

int UnixListener::Release() { return std::exchange(socket_, -1); }

}  // namespace baton
