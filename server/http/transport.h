// The bytes of one connection: a TCP socket, a Unix socket, or TLS over TCP. Everything above sees
// one code. The socket does not block. Loop's thread; who starts an operation keeps the transport
// alive, and in its place, until the handler has run.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/tls_session.h"

namespace baton {

enum class TransportKind { kTcp, kTls, kUnix };
inline constexpr const char* kTransportKindNames[] = {"tcp", "tls", "unix"};
inline constexpr size_t kTransportKinds = 3;

class Transport {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Error = boost::system::error_code;

  explicit Transport(Socket socket);
  Transport(Transport&&) = default;
  Transport& operator=(Transport&&) = default;

  int native_handle() { return socket_.native_handle(); }
  bool is_tls() const { return tls_ != nullptr; }
  TransportKind kind() const {
    return is_unix_ ? TransportKind::kUnix : is_tls() ? TransportKind::kTls : TransportKind::kTcp;
  }
  // Equal for connections from one address; of IPv6 the network counts, of which a host has all.
  // 0 for a Unix socket.
  uint64_t peer() const { return peer_; }
  // From now on bytes are those of the session, which was made for this socket.
  void Secure(std::unique_ptr<TlsSession> session) { tls_ = std::move(session); }
  TlsSession* tls() { return tls_.get(); }

  // Calls handler(error) when there is something to read.
  template <typename Handler>
  void AwaitInput(Handler handler) {
    socket_.async_wait(Socket::wait_read, std::move(handler));
  }
  template <typename Handler>
  void AwaitRoom(Handler handler) {
    socket_.async_wait(Socket::wait_write, std::move(handler));
  }
  // buffer: longer than a TLS record (16 KiB), so that nothing read stays in the session, where
  // AwaitInput would not see it. Errors: would_block, eof, and those of the socket.
  size_t ReadSome(std::span<char> buffer, Error& error);
  // Calls handler(error, n) later, when the kernel has taken the first n of the bytes, which stay
  // as they are till then.
  template <typename Handler>
  void AsyncWriteSome(std::string_view bytes, Handler handler) {
    if (tls_ != nullptr) return AsyncWriteTls(bytes, std::move(handler));
    socket_.async_write_some(boost::asio::buffer(bytes),
                             [this, handler = std::move(handler)](const Error& error, size_t n) {
                               n_taken_ += static_cast<int64_t>(n);
                               handler(error, n);
                             });
  }
  // Writes what can be written at once, and the end, before a close.
  void WriteNow(std::string_view bytes);
  // Tells the other side that nothing more comes; `ended` is called later.
  void AsyncEnd(std::function<void()> ended);
  void Close();

  // Bytes on the wire: that the kernel has taken, and those of them that the other machine has
  // acknowledged (of a Unix socket all: the kernel holds few, and counts them otherwise).
  int64_t taken() const { return tls_ != nullptr ? tls_->n_written() : n_taken_; }
  int64_t acknowledged();

 private:
  void AsyncWriteTls(std::string_view bytes, std::function<void(const Error&, size_t)> handler);

  Socket socket_;
  bool is_unix_ = false;
  uint64_t peer_ = 0;
  std::unique_ptr<TlsSession> tls_;  // null: plain
  int64_t n_taken_ = 0;              // plain
};

}  // namespace baton
