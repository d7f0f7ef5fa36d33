// Turns bytes of a connection into one HTTP request. A plain object: no socket, clock or thread.
// Boost.Beast parses; form and sizes about which Beast is too lenient (request smuggling) are
// checked here, on the raw bytes: RFC 9112 sections 2.2, 3.2, 5.2, 6.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace baton {

// Bytes, but for max_fields.
struct HttpLimits {
  size_t max_header = 16 << 10;  // request line and all header lines
  size_t max_fields = 64;        // number of header lines
  size_t max_line = 8 << 10;
  size_t max_target = 2 << 10;
  size_t max_body = 1 << 20;
};

// After an error the connection must not be used again: where the next request begins is unknown.
struct HttpParseError {
  int status = 400;  // of HTTP: 400, 413, 414, 417, 431, 505
  std::string message;
};

class HttpParser {
 public:
  enum class Progress { kNeedMore, kHead, kComplete, kError };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(HttpParser&&) noexcept;
  HttpParser& operator=(HttpParser&&) noexcept;

  // Takes bytes from the front of *input as far as they belong to this request. kHead is returned
  // once, when the header is complete and nothing of the body was read: call again to go on.
  // kComplete: request() is whole, *input begins with the next request. Not called after kComplete
  // or kError.
  Progress Take(std::string* input);

  // Whole from kHead on, but for the body; the body from kComplete on. After an error: as far as it
  // was read. The caller may move it away.
  HttpRequest& request();
  const HttpParseError& error() const;  // after kError
  bool in_body() const;                 // between kHead and kComplete
  size_t body_bytes() const;            // that it holds of a body, 0 once that is whole
  bool started() const;                 // some byte of this request was seen

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
