#include "server/http/http_parser.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

struct Outcome {
  int status = 0;  // 0: the request is whole; -1: more input is needed
  HttpRequest request;
  std::string rest;
};

// Feeds `bytes` in pieces of `step` and reads one request.
Outcome Read(const std::string& bytes, size_t step, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  std::string input;
  for (size_t at = 0; at < bytes.size(); at += step) {
    input += bytes.substr(at, step);
    while (true) {
      const HttpParser::Progress progress = parser.Take(&input);
      if (progress == HttpParser::Progress::kError) return {parser.error().status, {}, ""};
      if (progress == HttpParser::Progress::kComplete) {
        const size_t taken = at + std::min(step, bytes.size() - at);
        return {0, parser.request(), input + bytes.substr(taken)};
      }
      if (progress == HttpParser::Progress::kNeedMore) break;
    }
  }
  return {-1, {}, ""};
}

std::string Get(const std::string& fields, const std::string& target = "/x") {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
}
std::string Post(const std::string& fields, const std::string& body) {
  return "POST /x HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body;
}

TEST_CASE("a traceparent is taken if it is well-formed") {
  const std::string id = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  const auto taken = [](const std::string& value) {
    return Read(Get("Traceparent: " + value + "\r\n"), 1000).request.trace;
  };
  const std::string both = id + "-" + parent;
  for (const auto& [flags, is_sampled] :
       {std::pair("-01", true), {"-00", false}, {"-03", true}, {"-fe", false}, {"-ff", true}}) {
    INFO(flags);
    const TraceContext trace = taken("00-" + both + flags);
    CHECK(trace.trace_id == id);
    CHECK(trace.parent_id == parent);
    CHECK(trace.is_sampled == is_sampled);
    CHECK(trace.log_text() == both);
    CHECK(trace.response().empty());  // it has no span here
  }
  CHECK(taken("01-" + both + "-01-more").is_sampled);
  for (const std::string& bad :
       {std::string("x"), both, "00-" + both, "00-" + both + "-01-more", "ff-" + both + "-01",
        "00-" + std::string(32, '0') + "-" + parent + "-01",
        "00-" + id + "-" + std::string(16, '0') + "-01", "00-" + id + "_" + parent + "-01",
        "00-" + std::string(32, 'A') + "-" + parent + "-01"}) {
    INFO(bad);
    CHECK_FALSE(taken(bad).is_known());
  }
}

TEST_CASE("whole requests in pieces of any size") {
  const std::string bytes = Post(
                                "Content-Length: 5\r\nX-Request-Id: r1\r\nOrigin: http://o\r\n"
                                "Content-Type: application/json\r\n",
                                "hello") +
                            "GET /next";
  const std::string chunked =
      Post("Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3;ext=1\r\nllo\r\n0\r\nT: 1\r\n\r\n") +
      "GET /next";
  for (size_t step = 1; step < 100; ++step) {
    INFO(step);
    Outcome outcome = Read(bytes, step);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.request.method == "POST");
    CHECK(outcome.request.path == "/x");
    CHECK(outcome.request.body == "hello");
    CHECK(outcome.request.request_id == "r1");
    CHECK(outcome.request.origin == "http://o");
    CHECK(outcome.request.content_type == "application/json");
    CHECK(outcome.request.keep_alive);
    CHECK(outcome.rest == "GET /next");
    outcome = Read(chunked, step);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.request.body == "hello");
    CHECK(outcome.rest == "GET /next");
  }
}

TEST_CASE("targets are split and decoded once") {
  Outcome outcome = Read(Get("", "/v1/models/a%2Fb?x=%20y"), 7);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.request.path == "/v1/models/a/b");
  CHECK(outcome.request.query == "x=%20y");
  outcome = Read("GET http://a/health HTTP/1.1\r\nHost: a\r\n\r\n", 100);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.request.path == "/health");
  CHECK(Read("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 100).status == 0);
  outcome = Read("GET /x HTTP/1.0\r\n\r\n", 100);
  REQUIRE(outcome.status == 0);
  CHECK_FALSE(outcome.request.keep_alive);
  CHECK(outcome.request.is_http_1_0);
  CHECK(
      Read(Post("Expect: 100-continue\r\nContent-Length: 1\r\n", "x"), 3).request.expects_continue);
}

TEST_CASE("requests that could be read in two ways are refused, whatever the pieces") {
  const struct {
    std::string bytes;
    int status;
  } kCases[] = {
      {Post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "0\r\n\r\n"), 400},
      {Post("Content-Length: 2\r\nContent-Length: 3\r\n", "abc"), 400},
      {Post("Content-Length: 2\r\nContent-Length: 2\r\n", "ab"), 400},
      {Post("Content-Length: 2, 2\r\n", "ab"), 400},
      {Post("Content-Length: +2\r\n", "ab"), 400},
      {Post("Content-Length: -1\r\n", "ab"), 400},
      {Post("Content-Length: 0x2\r\n", "ab"), 400},
      {Post("Content-Length: 0002\r\n", "ab"), 400},
      {Post("Content-Length: 99999999999999999999999\r\n", "ab"), 400},
      {Post("Transfer-Encoding: gzip\r\n", ""), 400},
      {Post("Transfer-Encoding: identity\r\n", ""), 400},
      {Post("Transfer-Encoding: xchunked\r\n", ""), 400},
      {Post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), 400},
      {"POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {Get("X: a\r\n b\r\n"), 400},
      {Get("X : a\r\n"), 400},
      {Get(std::string("X: a\0b\r\n", 8)), 400},
      {"GET /x HTTP/1.1\r\n\r\n", 400},
      {"GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /x HTTP/1.1\nHost: a\n\n", 400},
      {"GET /x HTTP/9.9\r\nHost: a\r\n\r\n", 505},
      {"GET /x HTTP/1.2\r\nHost: a\r\n\r\n", 505},
      {"GET /x HTTP/0.9\r\nHost: a\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET /x HTTP/11\r\nHost: a\r\n\r\n", 400},
      {"GET /x HTTQ/1.1\r\nHost: a\r\n\r\n", 400},
      {"\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00", 400},
      {"get /x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GARBAGE\r\n\r\n", 400},
      {Get("", "/a%2"), 400},
      {Get("", "/a%00"), 400},
      {Get("", "/a<b>"), 400},
      {Get("", "/a#b"), 400},
      {Get("", "/\xc3\xa4"), 400},
      {Get("Expect: foo\r\n"), 417},
      {Post("Transfer-Encoding: chunked\r\n", "0x2\r\nab\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "+2\r\nab\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "2\r\nabX\r\n0\r\n\r\n"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\nab"), 400},
      {Post("Transfer-Encoding: chunked\r\n", "2;" + std::string(300, 'e') + "\r\nab\r\n"), 400},
  };
  for (const auto& [bytes, status] : kCases) {
    for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{10000}}) {
      INFO(step << " " << bytes);
      CHECK(Read(bytes, step).status == status);
    }
  }
}

TEST_CASE("sizes are bounded") {
  HttpLimits limits;
  limits.max_header = 2000;
  limits.max_line = 1000;
  limits.max_target = 500;
  limits.max_fields = 10;
  limits.max_body = 1000;
  const auto status = [&](const std::string& bytes) {
    const int whole = Read(bytes, 100000, limits).status;
    CHECK(Read(bytes, 5, limits).status == whole);
    return whole;
  };
  std::string fields;
  for (int i = 0; i < 9; ++i) fields += "X: a\r\n";
  CHECK(status(Get(fields)) == 0);  // Host is the tenth
  CHECK(status(Get(fields + "X: a\r\n")) == 431);
  CHECK(status(Get("X: " + std::string(900, 'a') + "\r\n")) == 0);
  CHECK(status(Get("X: " + std::string(1100, 'a') + "\r\n")) == 431);
  CHECK(status(Get("", "/" + std::string(499, 'a'))) == 0);
  CHECK(status(Get("", "/" + std::string(500, 'a'))) == 414);
  CHECK(status(std::string(3000, 'A')) == 431);
  CHECK(status(Post("Content-Length: 1000\r\n", std::string(1000, 'b'))) == 0);
  CHECK(status(Post("Content-Length: 1001\r\n", "")) == 413);
  CHECK(status(Post("Transfer-Encoding: chunked\r\n",
                    "3e8\r\n" + std::string(1000, 'b') + "\r\n0\r\n\r\n")) == 0);
  CHECK(status(Post("Transfer-Encoding: chunked\r\n",
                    "3e9\r\n" + std::string(1001, 'b') + "\r\n0\r\n\r\n")) == 413);
  CHECK(status(Post("Transfer-Encoding: chunked\r\n",
                    std::string(100000, '0') + "1\r\na\r\n0\r\n\r\n")) == 400);
  CHECK(status(Post("Transfer-Encoding: chunked\r\n",
                    "0\r\nT: " + std::string(100000, 't') + "\r\n\r\n")) == 400);
  // One byte per chunk: more framing than body.
  std::string drip;
  for (int i = 0; i < 900; ++i) drip += "1;" + std::string(200, 'e') + "\r\na\r\n";
  CHECK(status(Post("Transfer-Encoding: chunked\r\n", drip + "0\r\n\r\n")) == 413);
}

TEST_CASE("errors of the header know the path as soon as its line was there") {
  const auto path_of = [](const std::string& bytes) {
    std::vector<std::string> paths;
    for (const size_t step : {size_t{1}, size_t{7}, bytes.size()}) {
      HttpParser parser(HttpLimits{});
      std::string input;
      for (size_t at = 0; at < bytes.size(); at += step) {
        input += bytes.substr(at, step);
        if (parser.Take(&input) == HttpParser::Progress::kError) break;
      }
      paths.push_back(parser.request().path);
    }
    CHECK(paths[0] == paths[1]);
    CHECK(paths[0] == paths[2]);
    return paths[0];
  };
  CHECK(path_of("POST /v1/messages?beta=true HTTP/1.1\r\nHost: a\r\nX: " +
                std::string(100000, 'y')) == "/v1/messages");
  CHECK(path_of("POST /v1/mess%61ges HTTP/1.1\r\nHo") == "/v1/messages");  // came too slowly
  CHECK(path_of("POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n") ==
        "/v1/messages");
  CHECK(path_of("POST /v1/messages").empty());
  CHECK(path_of("POST http://a/v1 HTTP/1.1\r\n").empty());
  CHECK(path_of("POST /%00 HTTP/1.1\r\n").empty());
  CHECK(path_of("GARBAGE\r\nX: a b c\r\n").empty());
}

TEST_CASE("an empty chunked body in three pieces, which older parsers trip over") {
  HttpParser parser{HttpLimits()};
  std::string input = Post("Transfer-Encoding: chunked\r\n", "0\r\n");
  CHECK(parser.Take(&input) == HttpParser::Progress::kHead);
  CHECK(parser.in_body());
  CHECK(parser.Take(&input) == HttpParser::Progress::kNeedMore);
  input += "\r";
  CHECK(parser.Take(&input) == HttpParser::Progress::kNeedMore);
  input += "\n";
  CHECK(parser.Take(&input) == HttpParser::Progress::kComplete);
  CHECK(parser.request().body.empty());
}

TEST_CASE("responses cannot be split by a header value") {
  HttpReply reply;
  reply.headers.emplace_back("X-Request-Id", "a\r\nSet-Cookie: b");
  const std::string head = ReplyHead(reply, {});
  CHECK(head.find("\nSet-Cookie") == std::string::npos);
  CHECK(head.find("X-Request-Id: a??Set-Cookie: b\r\n") != std::string::npos);
  std::string out;
  AppendChunk("hello\n", false, &out);
  AppendChunk("", false, &out);
  AppendLastChunk(false, &out);
  CHECK(out == "6\r\nhello\n\r\n0\r\n\r\n");
}

}  // namespace
}  // namespace baton
