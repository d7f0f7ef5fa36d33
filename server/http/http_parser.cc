#include "server/http/http_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;

constexpr size_t kMaxChunkExtension = 256;
// Chunk headers and trailers are seen whole inside one slice, so none can be longer.
constexpr size_t kChunkedSlice = 4096;
constexpr size_t kWireSlack = 64 << 10;
constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::string_view Std(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::optional<HttpParseError> Bad(std::string message, int status = 400) {
  return HttpParseError{status, std::move(message)};
}

// RFC 3986: unreserved, reserved without '#', and %XX.
bool IsTargetText(std::string_view target) {
  for (size_t i = 0; i < target.size(); ++i) {
    const char c = target[i];
    if (c == '%') {
      if (i + 2 >= target.size() ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(target[i + 1])) ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(target[i + 2]))) {
        return false;
      }
      i += 2;
    } else if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
               std::string_view("-._~:/?[]@!$&'()*+,;=").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  const auto digit = [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    if (decoded.back() == '\0') return std::nullopt;
    i += 2;
  }
  return decoded;
}

// Request line and fields before any parsing: line lengths, number of lines, folded lines.
std::optional<HttpParseError> CheckRawHead(std::string_view head, const HttpLimits& limits) {
  size_t n_lines = 0;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    if (n_lines == 0) {
      const size_t first = line.find(' '), last = line.rfind(' ');
      if (first != last && last - first - 1 > limits.max_target) return Bad("URI too long", 414);
    }
    if (line.size() > limits.max_line) return Bad("header line too long", 431);
    if (!line.empty() && (line[0] == ' ' || line[0] == '\t')) return Bad("folded header line");
    if (++n_lines > limits.max_fields + 1) return Bad("too many header fields", 431);
    head.remove_prefix(end + 2);
  }
  return std::nullopt;
}

// Refuses headers that leave the body's end open to two readings (RFC 9112 section 6.3).
std::optional<HttpParseError> CheckFraming(const http::request_header<>& head) {
  const size_t n_encodings = head.count(http::field::transfer_encoding);
  if (n_encodings > 0) {
    if (head.version() < 11) return Bad("Transfer-Encoding in HTTP/1.0");
    if (n_encodings > 1 || !absl::EqualsIgnoreCase(
                               std::string(Std(head[http::field::transfer_encoding])), "chunked")) {
      return Bad("Transfer-Encoding must be exactly chunked");
    }
  }
  const size_t n_lengths = head.count(http::field::content_length);
  if (n_lengths > 1) return Bad("more than one Content-Length");
  if (n_lengths == 1) {
    const std::string_view length = Std(head[http::field::content_length]);
    const bool digits = std::all_of(length.begin(), length.end(),
                                    [](unsigned char c) { return absl::ascii_isdigit(c); });
    if (length.empty() || !digits || (length.size() > 1 && length[0] == '0')) {
      return Bad("Content-Length must be one plain number");
    }
  }
  return std::nullopt;
}

std::optional<HttpParseError> CheckHost(const http::request_header<>& head) {
  const size_t n_hosts = head.count(http::field::host);
  if (n_hosts > 1 || (n_hosts == 0 && head.version() >= 11)) {
    return Bad("exactly one Host header is needed");
  }
  const std::string_view host = Std(head[http::field::host]);
  if (host.find_first_of(" \t,/\\@?#") != std::string_view::npos) return Bad("malformed Host");
  return std::nullopt;
}

// The request line has another version than 1.0 and 1.1, or none.
HttpParseError BadVersion(std::string_view head) {
  if (head.starts_with("PRI * HTTP/2"))
    return {505, "HTTP/2 is not spoken here: use HTTP/1.1, or a proxy that speaks both"};
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::string_view version = line.substr(line.rfind(' ') + 1);
  const bool is_version = version.size() == 8 && version.starts_with("HTTP/") &&
                          absl::ascii_isdigit(static_cast<unsigned char>(version[5])) &&
                          version[6] == '.' &&
                          absl::ascii_isdigit(static_cast<unsigned char>(version[7]));
  return {is_version ? 505 : 400, "only HTTP/1.0 and HTTP/1.1 are spoken"};
}

// Origin form, or absolute form with the authority of Host, or `*` for OPTIONS.
std::optional<HttpParseError> SplitTarget(const http::request_header<>& head,
                                          HttpRequest* request) {
  std::string_view target = Std(head.target());
  if (target == "*" && request->method == "OPTIONS") {
    request->path = "*";
    return std::nullopt;
  }
  if (absl::StartsWithIgnoreCase(std::string(target), "http://")) {
    target.remove_prefix(7);
    const std::string_view authority = target.substr(0, target.find('/'));
    if (authority != Std(head[http::field::host])) return Bad("target and Host differ");
    target.remove_prefix(authority.size());
    if (target.empty()) target = "/";
  }
  if (target.empty() || target[0] != '/' || !IsTargetText(target)) {
    return Bad("malformed request target");
  }
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) request->query = target.substr(mark + 1);
  auto path = PercentDecoded(target.substr(0, mark));
  if (!path) return Bad("NUL in the request target");
  request->path = *std::move(path);
  return std::nullopt;
}

}  // namespace

struct HttpParser::State {
  explicit State(const HttpLimits& l) : limits(l) {
    parser.header_limit(static_cast<std::uint32_t>(limits.max_header));
    parser.body_limit(limits.max_body);
    parser.on_chunk_header(on_chunk_header);
  }

  Progress Fail(HttpParseError problem) {
    error = std::move(problem);
    phase = Phase::kDone;
    return Progress::kError;
  }
  // True: an error a complete header would have too, seen early.
  std::optional<HttpParseError> CheckPartialHead(std::string_view bytes) {
    if (!bytes.empty() && !absl::ascii_isupper(static_cast<unsigned char>(bytes[0]))) {
      return Bad("this is not an HTTP request");
    }
    for (size_t at = bytes.find('\n', scanned); at != std::string_view::npos;
         at = bytes.find('\n', at + 1))
      if (at == 0 || bytes[at - 1] != '\r') return Bad("bare line feed");
    scanned = bytes.size();
    if (bytes.size() > limits.max_header) return Bad("header too large", 431);
    return std::nullopt;
  }
  // The path of an unfinished or malformed header: errors are answered in the shape of its API.
  void ReadPathEarly(std::string_view bytes);
  Progress TakeHead(std::string* input);
  Progress TakeBody(std::string* input);
  std::optional<HttpParseError> ReadHead();

  enum class Phase { kHead, kBody, kDone };
  HttpLimits limits;
  Parser parser;
  std::function<void(std::uint64_t, boost::beast::string_view, boost::beast::error_code&)>
      on_chunk_header =
          [](std::uint64_t, boost::beast::string_view extension, boost::beast::error_code& ec) {
            if (extension.size() > kMaxChunkExtension) ec = http::error::bad_chunk_extension;
          };
  Phase phase = Phase::kHead;
  size_t scanned = 0;     // bytes of the partial header already looked at
  bool has_line = false;  // the request line was there
  size_t wire_bytes = 0;  // of the body
  HttpRequest request;
  HttpParseError error;
};

std::optional<HttpParseError> HttpParser::State::ReadHead() {
  const http::request_header<>& head = parser.get();
  request.method = std::string(Std(head.method_string()));
  request.is_http_1_0 = head.version() < 11;
  request.keep_alive = parser.keep_alive();
  const auto text = [&](http::field name) { return std::string(Std(head[name])); };
  for (auto problem : {CheckFraming(head), CheckHost(head), SplitTarget(head, &request)}) {
    if (problem) return problem;
  }
  request.content_type = text(http::field::content_type);
  request.content_encoding = text(http::field::content_encoding);
  request.origin = text(http::field::origin);
  request.host = text(http::field::host);
  request.asked_headers = text(http::field::access_control_request_headers);
  request.user_agent = text(http::field::user_agent);
  request.accept_encoding = text(http::field::accept_encoding);
  request.if_none_match = text(http::field::if_none_match);
  request.timeout = std::string(Std(head["X-Request-Timeout-Ms"]));
  request.trace = ReadTraceparent(Std(head["traceparent"]));
  request.authorization = text(http::field::authorization);
  request.api_key = std::string(Std(head["X-Api-Key"]));
  request.client.key = absl::HashOf(request.authorization, request.api_key);
  const std::string expect = text(http::field::expect);
  if (!expect.empty()) {
    if (!absl::EqualsIgnoreCase(expect, "100-continue")) return Bad("unknown expectation", 417);
    request.expects_continue = !request.is_http_1_0;
  }
  const auto length = parser.content_length();
  request.has_body = parser.chunked() || (length && *length > 0);
  if (length && *length > limits.max_body) {
    return Bad(absl::StrCat("the body is larger than ", limits.max_body, " bytes"), 413);
  }
  return std::nullopt;
}

void HttpParser::State::ReadPathEarly(std::string_view bytes) {
  if (has_line) return;
  const size_t end = bytes.find("\r\n", scanned == 0 ? 0 : scanned - 1);
  if (end == std::string_view::npos) return;
  has_line = true;
  const size_t first = bytes.find(' ');
  const size_t last = bytes.substr(0, end).rfind(' ');
  if (first >= last || last > end) return;
  const std::string_view target = bytes.substr(first + 1, last - first - 1);
  if (!target.starts_with('/') || !IsTargetText(target)) return;
  request.path = PercentDecoded(target.substr(0, target.find('?'))).value_or("");
}

HttpParser::Progress HttpParser::State::TakeHead(std::string* input) {
  ReadPathEarly(*input);
  const size_t end = input->find(kEndOfHead, scanned < 3 ? 0 : scanned - 3);
  const size_t size = end == std::string::npos ? input->size() : end + kEndOfHead.size();
  if (auto problem = CheckPartialHead(std::string_view(*input).substr(0, size))) {
    return Fail(*std::move(problem));
  }
  if (end == std::string::npos) return Progress::kNeedMore;
  if (auto problem = CheckRawHead(std::string_view(*input).substr(0, end + 2), limits)) {
    return Fail(*std::move(problem));
  }
  boost::beast::error_code ec;
  parser.eager(false);
  parser.put(boost::asio::const_buffer(input->data(), size), ec);
  request.request_id = std::string(Std(parser.get()["X-Request-Id"]));  // errors name it too
  if (ec == http::error::body_limit) {
    return Fail({413, absl::StrCat("the body is larger than ", limits.max_body, " bytes")});
  }
  if (ec == http::error::bad_version) return Fail(BadVersion(*input));
  if (ec || !parser.is_header_done()) return Fail({400, "malformed HTTP header: " + ec.message()});
  if (auto problem = ReadHead()) return Fail(*std::move(problem));
  input->erase(0, size);
  phase = Phase::kBody;
  return Progress::kHead;
}

HttpParser::Progress HttpParser::State::TakeBody(std::string* input) {
  parser.eager(true);
  size_t at = 0;
  while (!parser.is_done()) {
    const size_t left = input->size() - at;
    const size_t slice = parser.chunked() ? std::min(left, kChunkedSlice) : left;
    if (slice == 0) break;
    boost::beast::error_code ec;
    const size_t used = parser.put(boost::asio::const_buffer(input->data() + at, slice), ec);
    at += used;
    wire_bytes += used;
    if (ec == http::error::body_limit || wire_bytes > 2 * limits.max_body + kWireSlack) {
      return Fail({413, absl::StrCat("the body is larger than ", limits.max_body, " bytes")});
    }
    if (ec == http::error::need_more) {
      if (slice == kChunkedSlice && used == 0)
        return Fail({400, "chunk header or trailer too long"});
      if (used == 0) break;
      continue;
    }
    if (ec) return Fail({400, "malformed HTTP body: " + ec.message()});
  }
  input->erase(0, at);
  if (!parser.is_done()) return Progress::kNeedMore;
  request.body = std::move(parser.get().body());
  phase = Phase::kDone;
  return Progress::kComplete;
}

HttpParser::HttpParser(const HttpLimits& limits) : state_(std::make_unique<State>(limits)) {}
HttpParser::~HttpParser() = default;
HttpParser::HttpParser(HttpParser&&) noexcept = default;
HttpParser& HttpParser::operator=(HttpParser&&) noexcept = default;

HttpParser::Progress HttpParser::Take(std::string* input) {
  State& state = *state_;
  BATON_CHECK(state.phase != State::Phase::kDone);
  try {  // Beast's fields throw on absurd sizes
    return state.phase == State::Phase::kHead ? state.TakeHead(input) : state.TakeBody(input);
  } catch (const std::exception&) {
    return state.Fail({400, "malformed HTTP request"});
  }
}

HttpRequest& HttpParser::request() { return state_->request; }
const HttpParseError& HttpParser::error() const { return state_->error; }
bool HttpParser::in_body() const { return state_->phase == State::Phase::kBody; }
size_t HttpParser::body_bytes() const { return in_body() ? state_->wire_bytes : 0; }
bool HttpParser::started() const {
  return state_->scanned > 0 || state_->phase != State::Phase::kHead;
}

}  // namespace baton
