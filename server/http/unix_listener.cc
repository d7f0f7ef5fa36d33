#include "server/http/unix_listener.h"

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

absl::Status Wrong(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("server.uds: ", path, " ", what));
}

absl::Status Failed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": ", std::strerror(errno),
                                             "; choose another --uds, in a folder that this user "
                                             "may write"));
}

// Removes what a server left that was killed.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? absl::OkStatus() : Failed(path);
  if (!S_ISSOCK(info.st_mode))
    return Wrong(path, "is there already and is no socket: choose another --uds, or remove it");
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int result =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                         : errno;
  ::close(probe);
  if (result != ECONNREFUSED)
    return absl::UnavailableError(
        absl::StrCat("server.uds: somebody listens on ", path,
                     ": end the server that does, or choose another --uds"));
  return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : Failed(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Listen(const std::string& path,
                                                                   mode_t mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Wrong(path, absl::StrCat("is too long for a socket: at most ",
                                    sizeof address.sun_path - 1, " bytes"));
  std::memcpy(address.sun_path, path.data(), path.size());
  RETURN_IF_ERROR(RemoveStale(path, address));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  std::unique_ptr<UnixListener> listener(new UnixListener(path, socket));
  // The mode is right before anybody can connect, which is from listen on.
  struct stat info {};
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), mode) != 0 || ::lstat(path.c_str(), &info) != 0 ||
      ::listen(socket, SOMAXCONN) != 0)
    return Failed(path);
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
