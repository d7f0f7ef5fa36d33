// Headers that every answer has, whatever went wrong: the request's id, and what browsers ask for.
#include <catch2/catch.hpp>

#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

// The server's answer to these bytes, to the end of its header.
std::string HeadOf(const Served& served, const std::string& bytes) {
  RawClient client(served.port);
  client.Send(bytes);  // the answer may cut it off
  REQUIRE(client.ReadUntil("\r\n\r\n"));
  return client.received.substr(0, client.received.find("\r\n\r\n") + 2);
}

bool Has(const std::string& head, const std::string& line) {
  return head.find("\r\n" + line) != std::string::npos;
}

TEST_CASE("every answer has an X-Request-Id and, where an origin is allowed, its CORS headers") {
  HttpServerOptions http;
  http.limits.max_body = 20000;
  http.max_connections = 4;
  Served served(http, AnyOrigin());
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {Get("/health"), "200"},
      {Get("/nothing"), "404"},
      {Get("/v1/completions"), "405"},
      {Post("/v1/completions", kStream), "200"},
      {Post("/v1/completions", "{"), "400"},
      {Post("/v1/completions", "{}", "Content-Encoding: gzip\r\n"), "415"},
      {Post("/v1/embeddings", "{}"), "501"},
      {Post("/v1/completions", std::string(20001, ' ')), "413"},
      {"GARBAGE\r\n\r\n", "400"},
      {"GET / HTTP/9.9\r\n\r\n", "505"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
      {"GET /health HTTP/1.1\r\nHost: a\r\nX: " + std::string(100000, 'y') + "\r\n\r\n", "431"},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       "400"},
  };
  for (const auto& [bytes, status] : kCases) {
    const std::string head = HeadOf(served, bytes);
    INFO(bytes.substr(0, 100));
    INFO(head);
    CHECK(head.find("HTTP/1.1 " + status) == 0);
    const size_t id = head.find("\r\nX-Request-Id: ");
    REQUIRE(id != std::string::npos);
    CHECK(head.find("\r\n", id + 2) - id == 16 + 16);  // made here: 16 digits
    CHECK(Has(head, "Access-Control-Allow-Origin: *\r\n"));
    CHECK(Has(head, "Access-Control-Expose-Headers: X-Request-Id\r\n"));
  }
  // The client's own id, in errors of the framing too.
  CHECK(
      Has(HeadOf(served, Get("/nothing", "X-Request-Id: mine.1\r\n")), "X-Request-Id: mine.1\r\n"));
  CHECK(Has(
      HeadOf(served, Post("/v1/completions", std::string(20001, ' '), "X-Request-Id: mine.2\r\n")),
      "X-Request-Id: mine.2\r\n"));
}

TEST_CASE("answers say where a retry cannot help, and only there") {
  HttpServerOptions http;
  http.limits.max_body = 20000;
  Served served(http);
  const auto says = [&](const std::string& bytes) {
    return Has(HeadOf(served, bytes), "X-Should-Retry: false\r\n");
  };
  CHECK(says(Post("/v1/completions", "{")));
  CHECK(says(Post("/v1/messages", "{}")));
  CHECK(says(Post("/v1/completions", std::string(20001, ' '))));
  CHECK(says(Post("/v1/embeddings", "{}")));
  CHECK(says(Get("/nothing")));
  CHECK(says("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  CHECK_FALSE(says(Get("/health")));
  CHECK_FALSE(says(Post("/v1/completions", kStream)));
  for (const int status : {408, 409, 429, 500, 503}) CHECK_FALSE(RetryCannotHelp(status));
}

TEST_CASE("no CORS headers where no origin is allowed") {
  Served served;
  for (const std::string& bytes :
       {Get("/health", "Origin: http://o\r\n"), std::string("GARBAGE\r\n\r\n"),
        std::string("OPTIONS /v1/completions HTTP/1.1\r\nHost: a\r\nOrigin: http://o\r\n\r\n")}) {
    const std::string head = HeadOf(served, bytes);
    INFO(head);
    CHECK(head.find("Access-Control") == std::string::npos);
    CHECK(Has(head, "X-Request-Id: "));
  }
}

TEST_CASE("a preflight names the headers that were asked for, Authorization too") {
  Served served({}, AnyOrigin());
  const std::string preflight =
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: a\r\nOrigin: http://o\r\n"
      "Access-Control-Request-Method: POST\r\n";
  const std::string asked =
      HeadOf(served, preflight + "Access-Control-Request-Headers: authorization, x-mine\r\n\r\n");
  INFO(asked);
  CHECK(asked.find("HTTP/1.1 200") == 0);
  CHECK(Has(asked, "Access-Control-Allow-Headers: authorization, x-mine\r\n"));
  CHECK(Has(asked, "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"));
  CHECK(Has(HeadOf(served, preflight + "\r\n"),
            "Access-Control-Allow-Headers: *, Authorization\r\n"));
}

TEST_CASE("the host to bind may be a name; one that is none is an error that says so") {
  HttpServerOptions http;
  http.host = "localhost";
  Served served(http);
  CHECK(served.port > 0);
  EventLoop loop;
  http.host = "no such host.invalid";
  const auto failed = HttpServer::Start(&loop, http, served.front.get());
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.status().message().find("--host") != std::string::npos);
}

}  // namespace
}  // namespace baton
