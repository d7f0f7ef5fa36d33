#include "tests/e2e/chaos/tcp_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

absl::Status Failed(const char* what) {
  return absl::InternalError(absl::StrCat("relay: ", what, ": ", std::strerror(errno)));
}

// Moves only the calling thread into the namespace; its later sockets belong there.
absl::Status Enter(const std::string& name_space) {
  if (name_space.empty()) return absl::OkStatus();
  const int fd = ::open(absl::StrCat("/run/netns/", name_space).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("namespace");
  const int entered = ::setns(fd, CLONE_NEWNET);
  ::close(fd);
  return entered == 0 ? absl::OkStatus() : Failed("setns");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpRelay>> TcpRelay::Start(const std::string& name_space,
                                                          const std::string& host, HttpUrl target) {
  std::unique_ptr<TcpRelay> relay(new TcpRelay());
  std::promise<absl::Status> listens;
  std::future<absl::Status> listening = listens.get_future();
  relay->acceptor_ = std::thread(
      [relay = relay.get(), listens = std::move(listens), name_space, host, target]() mutable {
        const absl::Status status = relay->Listen(name_space, host);
        listens.set_value(status);
        if (status.ok()) relay->Accept(target);
      });
  RETURN_IF_ERROR(listening.get());
  return relay;
}

absl::Status TcpRelay::Listen(const std::string& name_space, const std::string& host) {
  RETURN_IF_ERROR(Enter(name_space));
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = AddressOf(host, 0);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, any, &size) != 0) {
    return Failed("listen");
  }
  port_ = ntohs(address.sin_port);
  return absl::OkStatus();
}

int TcpRelay::Dial(const HttpUrl& target) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1, patience_ms = 5000;  // limit across a cut link
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
  const sockaddr_in address = AddressOf(target.host, target.port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ::close(fd);
  return -1;
}

void TcpRelay::Accept(HttpUrl target) {
  for (int near = -1; (near = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    const int far = Dial(target);
    std::lock_guard lock(mutex_);
    if (far < 0 || closing_) {
      ::close(near);
      if (far >= 0) ::close(far);
      continue;
    }
    sockets_.insert(sockets_.end(), {near, far});
    carriers_.emplace_back([this, near, far] { Carry(near, far, &n_forwarded_); });
    carriers_.emplace_back([this, near, far] { Carry(far, near, nullptr); });
  }
}

void TcpRelay::Hold(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  flows_.notify_all();
}

// Carries bytes until either side ends, then ends both. The descriptors stay open until the relay
// is destroyed, so that no shutdown hits a reused number.
void TcpRelay::Carry(int from, int to, std::atomic<int64_t>* n_bytes) {
  char chunk[16384];
  while (true) {
    const ssize_t got = ::recv(from, chunk, sizeof(chunk), 0);
    {
      std::unique_lock lock(mutex_);
      flows_.wait(lock, [this] { return !held_ || closing_; });
    }
    if (got <= 0) break;
    ssize_t sent = 0;
    for (ssize_t n = 0; sent < got; sent += n) {
      n = ::send(to, chunk + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) break;
    }
    if (sent < got) break;
    if (n_bytes != nullptr) *n_bytes += got;
  }
  ::shutdown(from, SHUT_RDWR);
  ::shutdown(to, SHUT_RDWR);
}

TcpRelay::~TcpRelay() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    flows_.notify_all();
    for (const int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
  }
  if (listener_ >= 0) ::shutdown(listener_, SHUT_RDWR);  // ends accept
  acceptor_.join();
  for (std::thread& carrier : carriers_) carrier.join();
  for (const int fd : sockets_) ::close(fd);
  if (listener_ >= 0) ::close(listener_);
}

}  // namespace baton
