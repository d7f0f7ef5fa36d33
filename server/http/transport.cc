#include "server/http/transport.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstring>

namespace baton {

namespace asio = boost::asio;

namespace {

constexpr unsigned char kIpv4Mapped[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

uint64_t PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address, sizeof ipv4);
    return ntohl(ipv4.sin_addr.s_addr);
  }
  if (address.ss_family != AF_INET6) return 0;
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address, sizeof ipv6);
  const unsigned char* bytes = ipv6.sin6_addr.s6_addr;
  if (std::memcmp(bytes, kIpv4Mapped, sizeof kIpv4Mapped) == 0) {
    uint32_t ipv4 = 0;
    std::memcpy(&ipv4, bytes + sizeof kIpv4Mapped, sizeof ipv4);
    return ntohl(ipv4);
  }
  uint64_t network = 0;
  std::memcpy(&network, bytes, sizeof network);
  return network;
}

}  // namespace

Transport::Transport(Socket socket) : socket_(std::move(socket)) {
  Error ignored;
  socket_.non_blocking(true, ignored);
  const int yes = 1;
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket_.native_handle(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return;
  is_unix_ = address.ss_family == AF_UNIX;
  peer_ = PeerOf(address);
}

size_t Transport::ReadSome(std::span<char> buffer, Error& error) {
  if (tls_ == nullptr) return socket_.read_some(asio::buffer(buffer.data(), buffer.size()), error);
  size_t n = 0;
  switch (tls_->Read(buffer, &n)) {
    case TlsSession::Progress::kDone:
      error = {};
      break;
    case TlsSession::Progress::kWantsInput:
    case TlsSession::Progress::kWantsRoom:
      error = asio::error::would_block;
      break;
    case TlsSession::Progress::kEnded:
      error = asio::error::eof;
      break;
    case TlsSession::Progress::kFailed:
      error = asio::error::connection_aborted;
      break;
  }
  return n;
}

// A record that did not fit stays in the session: what is tried again are the same bytes.
void Transport::AsyncWriteTls(std::string_view bytes,
                              std::function<void(const Error&, size_t)> handler) {
  size_t n = 0;
  const TlsSession::Progress progress = tls_->Write(bytes, &n);
  if (progress == TlsSession::Progress::kWantsRoom ||
      progress == TlsSession::Progress::kWantsInput) {
    AwaitRoom([this, bytes, handler = std::move(handler)](const Error& error) mutable {
      if (error || tls_ == nullptr) return handler(asio::error::operation_aborted, 0);
      AsyncWriteTls(bytes, std::move(handler));
    });
    return;
  }
  const Error error = progress == TlsSession::Progress::kDone
                          ? Error()
                          : Error(asio::error::make_error_code(asio::error::connection_aborted));
  asio::post(socket_.get_executor(),
             [handler = std::move(handler), error, n] { handler(error, n); });
}

void Transport::WriteNow(std::string_view bytes) {
  Error ignored;
  size_t n = 0;
  if (tls_ != nullptr) {
    tls_->Write(bytes, &n);
    tls_->End();
  } else {
    socket_.write_some(asio::buffer(bytes), ignored);
  }
}

void Transport::AsyncEnd(std::function<void()> ended) {
  if (tls_ != nullptr && tls_->End() == TlsSession::Progress::kWantsRoom) {
    AwaitRoom([this, ended = std::move(ended)](const Error& error) mutable {
      if (error || tls_ == nullptr) return ended();
      AsyncEnd(std::move(ended));
    });
    return;
  }
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  asio::post(socket_.get_executor(), std::move(ended));
}

void Transport::Close() {
  n_taken_ = taken();
  tls_.reset();
  Error ignored;
  socket_.close(ignored);
}

int64_t Transport::acknowledged() {
  int unacknowledged = 0;
  if (!is_unix_) ::ioctl(socket_.native_handle(), SIOCOUTQ, &unacknowledged);
  return taken() - unacknowledged;
}

}  // namespace baton
