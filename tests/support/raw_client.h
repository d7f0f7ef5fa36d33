// A connection over TCP or a Unix socket as a misbehaving client has it: bytes out as they are,
// bytes in with a deadline.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton {

class RawClient {
 public:
  // from: an address of this machine, 127.0.0.0/8, for a client of its own.
  explicit RawClient(int port, const char* from = nullptr)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (from != nullptr) {
      ::inet_pton(AF_INET, from, &address.sin_addr);
      ::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  explicit RawClient(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  virtual ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool is_open() const { return is_open_; }
  void SetReceiveBuffer(int bytes) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  // Sends the bytes. False: the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = Push(bytes);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Reads until `text` has come. False: the server closed or the limit passed first.
  bool ReadUntil(std::string_view text, absl::Duration limit = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + limit;
    while (received.find(text) == std::string::npos) {
      if (!ReadSome(deadline)) return false;
    }
    return true;
  }
  // Reads until the server closes. True: it closed within the limit; `received` has the bytes
  // before.
  bool ReadToEnd(absl::Duration limit = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + limit;
    while (ReadSome(deadline)) {
    }
    return ended_;
  }
  virtual void HalfClose() { ::shutdown(socket_, SHUT_WR); }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  std::string received;

 protected:
  int socket() const { return socket_; }
  // As send() and recv(); kNothingYet of Pull: bytes came, but none to tell.
  static constexpr ssize_t kNothingYet = -2;
  virtual ssize_t Push(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  virtual ssize_t Pull(char* buffer, size_t size) { return ::recv(socket_, buffer, size, 0); }

 private:
  bool ReadSome(absl::Time deadline) {
    const absl::Duration left = deadline - absl::Now();
    pollfd wait{socket_, POLLIN, 0};
    if (left <= absl::ZeroDuration() ||
        ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) {
      return false;
    }
    char chunk[32768];
    const ssize_t n = Pull(chunk, sizeof chunk);
    if (n == kNothingYet) return true;
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    received.append(chunk, static_cast<size_t>(n));
    return true;
  }
  int socket_;
  bool is_open_ = false, ended_ = false;
};

}  // namespace baton
