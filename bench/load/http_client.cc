#include "bench/load/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

// A descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return absl::UnavailableError(absl::StrFormat("send: %s", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

// Reads lines and counted bytes from a socket.
class Reader {
 public:
  Reader(int fd, absl::Time deadline) : fd_(fd), deadline_(deadline) {}

  // Appends the bytes of one recv. NotFound: the peer closed.
  absl::Status Fill() {
    char chunk[16384];
    ssize_t got = -1;
    do {
      if (deadline_ != absl::InfiniteFuture()) RETURN_IF_ERROR(LimitWait());
      got = ::recv(fd_, chunk, sizeof(chunk), 0);
      // A kernel tick may end the wait before the exchange's time is up.
    } while (got < 0 && (errno == EINTR || (errno == EAGAIN && is_limited_)));
    if (got == 0) return absl::NotFoundError("connection closed by the server");
    if (got < 0) return absl::UnavailableError(absl::StrFormat("recv: %s", std::strerror(errno)));
    received_ = absl::Now();
    buffer_.append(chunk, static_cast<size_t>(got));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Line() {  // without CRLF or LF
    size_t end = 0;
    while ((end = buffer_.find('\n', at_)) == std::string::npos) RETURN_IF_ERROR(Fill());
    std::string line = buffer_.substr(at_, end - at_);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    at_ = end + 1;
    Compact();
    return line;
  }

  absl::StatusOr<std::string> Bytes(size_t n) {
    while (buffer_.size() - at_ < n) RETURN_IF_ERROR(Fill());
    std::string bytes = buffer_.substr(at_, n);
    at_ += n;
    Compact();
    return bytes;
  }

  absl::Time received() const { return received_; }

 private:
  // Limits the next recv to the remaining time of the whole exchange.
  absl::Status LimitWait() {
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError("the exchange's time is up");
    timeval now{};
    socklen_t size = sizeof(now);
    ::getsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &now, &size);
    if (left >= absl::DurationFromTimeval(now)) return absl::OkStatus();
    is_limited_ = true;
    const timeval limit = absl::ToTimeval(std::max(left, absl::Microseconds(1)));
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return absl::OkStatus();
  }
  void Compact() {
    if (at_ < 65536) return;
    buffer_.erase(0, at_);
    at_ = 0;
  }
  int fd_;
  absl::Time deadline_;
  bool is_limited_ = false;  // recv waits until the deadline, not until the idle limit
  std::string buffer_;
  size_t at_ = 0;
  absl::Time received_;
};

// Cuts a chunked or counted body into lines for an event stream as bytes arrive.
class SseLines {
 public:
  explicit SseLines(const OnSseData& on_data) : on_data_(on_data) {}
  bool Push(std::string_view bytes, absl::Time received) {  // false: the caller wants to stop
    partial_.append(bytes);
    size_t start = 0, end = 0;
    while ((end = partial_.find('\n', start)) != std::string::npos) {
      std::string_view line(partial_.data() + start, end - start);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      start = end + 1;
      if (!line.starts_with("data:")) continue;
      line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
      if (!on_data_(line, received)) return false;
    }
    partial_.erase(0, start);
    return true;
  }

 private:
  const OnSseData& on_data_;
  std::string partial_;
};

absl::StatusOr<HttpResponse> ReadResponse(Reader& reader, const OnSseData& on_data) {
  HttpResponse response;
  ASSIGN_OR_RETURN(std::string status_line, reader.Line());
  if (status_line.size() < 12 || !status_line.starts_with("HTTP/1.")) {
    return absl::InternalError("not an HTTP response: " + status_line);
  }
  std::from_chars(status_line.data() + 9, status_line.data() + 12, response.status);
  while (true) {
    ASSIGN_OR_RETURN(std::string line, reader.Line());
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) return absl::InternalError("bad header line: " + line);
    std::string value = line.substr(colon + 1);
    absl::StripAsciiWhitespace(&value);
    response.headers[absl::AsciiStrToLower(line.substr(0, colon))] = value;
  }
  const bool is_stream =
      on_data && response.headers["content-type"].find("text/event-stream") != std::string::npos;
  SseLines lines(on_data);
  const auto take = [&](std::string_view bytes) {
    if (is_stream) return lines.Push(bytes, reader.received());
    response.body.append(bytes);
    return true;
  };
  if (response.headers.contains("content-length")) {
    size_t length = 0;
    const std::string& text = response.headers["content-length"];
    std::from_chars(text.data(), text.data() + text.size(), length);
    ASSIGN_OR_RETURN(std::string body, reader.Bytes(length));
    take(body);
    return response;
  }
  if (response.headers["transfer-encoding"] == "chunked") {
    while (true) {
      ASSIGN_OR_RETURN(std::string size_line, reader.Line());
      size_t size = 0;
      std::from_chars(size_line.data(), size_line.data() + size_line.size(), size, 16);
      ASSIGN_OR_RETURN(std::string bytes, reader.Bytes(size));
      ASSIGN_OR_RETURN(std::string crlf, reader.Line());
      if (size == 0 || !take(bytes)) return response;
    }
  }
  while (true) {  // no length: the body ends with the connection
    absl::StatusOr<std::string> line = reader.Line();
    if (!line.ok()) return response;
    if (!take(*line + "\n")) return response;
  }
}

}  // namespace

absl::StatusOr<HttpUrl> HttpUrl::Parse(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return absl::InvalidArgumentError("url " + url + " does not begin with http://");
  }
  std::string rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  HttpUrl parsed;
  const size_t colon = rest.rfind(':');
  parsed.host = rest.substr(0, colon);
  if (colon != std::string::npos) {
    const std::string port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (error != std::errc() || end != port.data() + port.size() || parsed.port <= 0) {
      return absl::InvalidArgumentError("url " + url + ": bad port");
    }
  }
  return parsed;
}

absl::StatusOr<int> HttpClient::Connect() const {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string port = absl::StrFormat("%d", url_.port);
  if (const int error = ::getaddrinfo(url_.host.c_str(), port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrFormat("%s: %s", url_.host, ::gai_strerror(error)));
  }
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && limits_.receive_buffer > 0) {  // before connecting, because it bounds the window
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &limits_.receive_buffer,
                 sizeof(limits_.receive_buffer));
  }
  const int connected = fd < 0 ? -1 : ::connect(fd, found->ai_addr, found->ai_addrlen);
  const int error = errno;
  ::freeaddrinfo(found);
  if (connected != 0) {
    if (fd >= 0) ::close(fd);
    return absl::UnavailableError(
        absl::StrFormat("connect to %s:%d: %s", url_.host, url_.port, std::strerror(error)));
  }
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  const timeval limit = absl::ToTimeval(limits_.silence);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return fd;
}

absl::StatusOr<HttpResponse> HttpClient::Exchange(const std::string& request,
                                                  const OnSseData& on_data) const {
  const absl::Time deadline = absl::Now() + limits_.total;
  ASSIGN_OR_RETURN(const int fd, Connect());
  const Socket socket(fd);
  RETURN_IF_ERROR(SendAll(fd, request));
  Reader reader(fd, deadline);
  return ReadResponse(reader, on_data);
}

absl::StatusOr<HttpResponse> HttpClient::Get(
    const std::string& path, const std::map<std::string, std::string>& headers) const {
  std::string request =
      absl::StrFormat("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", path, url_.host);
  for (const auto& [name, value] : headers) request += name + ": " + value + "\r\n";
  return Exchange(request + "\r\n", nullptr);
}

absl::StatusOr<HttpResponse> HttpClient::Post(
    const std::string& path, const std::string& json, const OnSseData& on_data,
    const std::map<std::string, std::string>& headers) const {
  std::string request = absl::StrFormat(
      "POST %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
      "Content-Length: %d\r\n",
      path, url_.host, json.size());
  for (const auto& [name, value] : headers) request += name + ": " + value + "\r\n";
  return Exchange(request + "\r\n" + json, on_data);
}

absl::StatusOr<std::string> HttpClient::Raw(std::string_view bytes) const {
  ASSIGN_OR_RETURN(const int fd, Connect());
  const Socket socket(fd);
  // The server may answer and close before it has read everything, so a failed send is no error
  // here.
  SendAll(fd, bytes).IgnoreError();
  std::string all;
  char chunk[4096];
  ssize_t got = 0;
  while ((got = ::recv(fd, chunk, sizeof(chunk), 0)) > 0)
    all.append(chunk, static_cast<size_t>(got));
  return all;
}

}  // namespace baton
