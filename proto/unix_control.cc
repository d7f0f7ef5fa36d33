#include "proto/unix_control.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr std::string_view kPrefix = "unix:";
constexpr int kBacklog = 64;

absl::Status Unavailable(const std::string& what, const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrFormat("%s the Unix socket %s: %s", what, path, std::strerror(error)));
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return absl::InvalidArgumentError(absl::StrFormat(
        "unix:%s: the path of a socket has 1 to %d bytes", path, sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<int> NewSocket(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return Unavailable("cannot open", path, errno);
  return socket;
}

// The user whose process the other end of a connection is; -1: unknown.
uid_t PeerOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_told = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return is_told ? peer.uid : static_cast<uid_t>(-1);
}

std::string PathOf(const std::string& address) { return address.substr(kPrefix.size()); }

// Removes a socket that nobody listens on any more.
void RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_stale =
      probe >= 0 &&
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (probe >= 0) ::close(probe);
  if (is_stale) ::unlink(path.c_str());
}

}  // namespace

bool IsUnixAddress(std::string_view address) { return address.starts_with(kPrefix); }

absl::StatusOr<int> DialUnixControl(const std::string& address) {
  const std::string path = PathOf(address);
  ASSIGN_OR_RETURN(const sockaddr_un place, AddressOf(path));
  ASSIGN_OR_RETURN(const int socket, NewSocket(path));
  absl::Status status;
  // A listener answers at once, or its backlog is full; then the dialler tries again later.
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
    status = Unavailable("cannot dial", path, errno);
  } else if (!IsTrustedUser(PeerOf(socket), ::geteuid())) {
    status = absl::PermissionDeniedError(absl::StrFormat(
        "who listens on %s is user %d, neither this process's nor root", path, PeerOf(socket)));
  } else if (::fcntl(socket, F_SETFL, O_NONBLOCK) != 0) {
    status = Unavailable("cannot use", path, errno);
  }
  if (status.ok()) return socket;
  ::close(socket);
  return status;
}

absl::StatusOr<std::unique_ptr<UnixControlListener>> UnixControlListener::Start(
    const std::string& address, Handlers handlers) {
  const std::string path = PathOf(address);
  ASSIGN_OR_RETURN(const sockaddr_un place, AddressOf(path));
  RemoveStale(path, place);
  ASSIGN_OR_RETURN(const int socket, NewSocket(path));
  // Before it listens nobody can connect, so that none comes in by another mode.
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(socket, kBacklog) != 0 ||
      ::fcntl(socket, F_SETFL, O_NONBLOCK) != 0) {
    const absl::Status status = Unavailable("cannot listen on", path, errno);
    ::close(socket);
    return status;
  }
  const int stop = ::eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    const absl::Status status = Unavailable("cannot listen on", path, errno);
    ::close(socket);
    ::unlink(path.c_str());
    return status;
  }
  return std::unique_ptr<UnixControlListener>(
      new UnixControlListener(path, socket, stop, std::move(handlers)));
}

UnixControlListener::UnixControlListener(std::string path, int socket, int stop, Handlers handlers)
    : path_(std::move(path)),
      socket_(socket),
      stop_(stop),
      handlers_(std::move(handlers)),
      thread_([this] { Accept(); }) {}

UnixControlListener::~UnixControlListener() {
  const uint64_t one = 1;
  BATON_CHECK(::write(stop_, &one, sizeof one) == sizeof one);
  thread_.join();
  ::unlink(path_.c_str());
  ::close(socket_);
  ::close(stop_);
}

void UnixControlListener::Accept() {
  // While there is no descriptor for another connection, the next look is a moment later.
  constexpr int kExhaustedMs = 100;
  bool is_exhausted = false;
  for (;;) {
    pollfd waits[] = {{stop_, POLLIN, 0}, {is_exhausted ? -1 : socket_, POLLIN, 0}};
    ::poll(waits, 2, is_exhausted ? kExhaustedMs : -1);
    if (waits[0].revents != 0) return;
    const int peer = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    is_exhausted = peer < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
    if (peer < 0) continue;
    const uid_t user = PeerOf(peer);
    if (IsTrustedUser(user, ::geteuid())) {
      handlers_.on_accepted(peer);
    } else {
      handlers_.on_refused(user);
      ::close(peer);
    }
  }
}

}  // namespace baton
