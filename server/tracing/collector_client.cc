#include "server/tracing/collector_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace baton {
namespace {

// More than the status line of an answer.
constexpr size_t kMaxHead = 4096;

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() { ::close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

// False: the time is up.
bool Await(int socket, short events, absl::Time deadline) {
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - MonotonicNow());
    if (left <= 0) return false;
    pollfd watched{.fd = socket, .events = events, .revents = 0};
    const int n = ::poll(&watched, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// 0, or errno.
int ConnectTo(int socket, const addrinfo& address, absl::Time deadline) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// 0, or errno.
int SendAll(int socket, std::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      return errno;
    } else if (!Await(socket, POLLOUT, deadline)) {
      return ETIMEDOUT;
    }
  }
  return 0;
}

// Reads `HTTP/1.1 200 ...`. 0: no such line came.
int ReadStatus(int socket, absl::Time deadline) {
  std::string head;
  while (head.find('\n') == std::string::npos && head.size() < kMaxHead) {
    char bytes[512];
    const ssize_t n = ::recv(socket, bytes, sizeof(bytes), 0);
    if (n > 0) {
      head.append(bytes, static_cast<size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !Await(socket, POLLIN, deadline)) {
      return 0;
    }
  }
  int status = 0;
  const bool is_status = head.size() > 12 && head.starts_with("HTTP/1.") && head[8] == ' ' &&
                         absl::SimpleAtoi(head.substr(9, 3), &status);
  return is_status ? status : 0;
}

}  // namespace

// A look-up of the C library, on a thread of its own: it may outlast the time limit.
struct CollectorClient::Lookup {
  explicit Lookup(const CollectorAddress& address) : host(address.host), port(address.port) {
    hints.ai_socktype = SOCK_STREAM;
    query.ar_name = host.c_str();
    query.ar_service = port.c_str();
    query.ar_request = &hints;
  }
  ~Lookup() {
    if (query.ar_result != nullptr) ::freeaddrinfo(query.ar_result);
  }

  const std::string host, port;
  addrinfo hints{};
  gaicb query{};
};

CollectorClient::CollectorClient(CollectorAddress address) : address_(std::move(address)) {}

CollectorClient::~CollectorClient() {
  // The resolver still writes into a look-up that cannot be cancelled.
  if (lookup_ && ::gai_cancel(&lookup_->query) == EAI_NOTCANCELED) [[maybe_unused]]
    auto* const left = lookup_.release();
}

absl::Status CollectorClient::Error(const char* what) const {
  return absl::UnavailableError(absl::StrCat(address_.host, ":", address_.port, ": ", what));
}

absl::Status CollectorClient::Resolve(absl::Time deadline) {
  if (!lookup_ || ::gai_error(&lookup_->query) != EAI_INPROGRESS) {
    lookup_ = std::make_unique<Lookup>(address_);
    gaicb* list[] = {&lookup_->query};
    if (const int error = ::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr); error != 0) {
      lookup_.reset();
      return Error(::gai_strerror(error));
    }
  }
  while (::gai_error(&lookup_->query) == EAI_INPROGRESS) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) return Error("its name is not resolved in time");
    const gaicb* const list[] = {&lookup_->query};
    const timespec limit = absl::ToTimespec(left);
    ::gai_suspend(list, 1, &limit);
  }
  const int error = ::gai_error(&lookup_->query);
  return error == 0 ? absl::OkStatus() : Error(::gai_strerror(error));
}

absl::StatusOr<int> CollectorClient::Connect(absl::Time deadline) {
  RETURN_IF_ERROR(Resolve(deadline));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = lookup_->query.ar_result; at != nullptr; at = at->ai_next) {
    const int socket =
        ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (socket < 0) {
      error = errno;
      continue;
    }
    // Each address gets its share: one that swallows everything must not take the time of all.
    int left = 0;
    for (const addrinfo* next = at; next != nullptr; next = next->ai_next) ++left;
    error = ConnectTo(socket, *at, MonotonicNow() + (deadline - MonotonicNow()) / left);
    if (error == 0) return socket;
    ::close(socket);
  }
  return Error(std::strerror(error));
}

absl::StatusOr<int> CollectorClient::Post(std::string_view json, absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  ASSIGN_OR_RETURN(const int descriptor, Connect(deadline));
  const Descriptor socket(descriptor);
  const bool is_v6 = address_.host.find(':') != std::string::npos;
  const std::string head =
      absl::StrCat("POST ", address_.path, " HTTP/1.1\r\nHost: ", is_v6 ? "[" : "", address_.host,
                   is_v6 ? "]:" : ":", address_.port,
                   "\r\nContent-Type: application/json\r\nContent-Length: ", json.size(),
                   "\r\nUser-Agent: baton\r\nConnection: close\r\n\r\n");
  int error = SendAll(socket.get(), head, deadline);
  if (error == 0) error = SendAll(socket.get(), json, deadline);
  // A collector that refuses what is too long may answer and close before it has read all.
  const int status = ReadStatus(socket.get(), deadline);
  if (status == 0 && error != 0) return Error(std::strerror(error));
  if (status == 0) return Error("no answer of HTTP came");
  return status;
}

}  // namespace baton
