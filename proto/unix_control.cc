#include "proto/unix_control.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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
  RETURN_IF_ERROR(AddressOf(path).status());
  ASSIGN_OR_RETURN(auto file, UnixListener::Listen(path, 0600, "router.control"));
  const int stop = ::eventfd(0, EFD_CLOEXEC);
  if (stop < 0) return Unavailable("cannot listen on", path, errno);
  return std::unique_ptr<UnixControlListener>(
      new UnixControlListener(std::move(file), stop, std::move(handlers)));
}

UnixControlListener::UnixControlListener(std::unique_ptr<UnixListener> file, int stop,
                                         Handlers handlers)
    : file_(std::move(file)),
      socket_(file_->Release()),
      stop_(stop),
      handlers_(std::move(handlers)),
      thread_([this] { Accept(); }) {}

UnixControlListener::~UnixControlListener() {
  const uint64_t one = 1;
  BATON_CHECK(::write(stop_, &one, sizeof one) == sizeof one);
  thread_.join();
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
