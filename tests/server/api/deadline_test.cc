// Deadlines of requests for tokens: by X-Request-Timeout-Ms, or the server's own.
#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"

#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

std::string Timeout(const std::string& value) {
  return absl::StrCat("X-Request-Timeout-Ms: ", value, "\r\n");
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sums the series of this name with this label.
double SumOf(const std::string& metrics, const std::string& name, const std::string& label) {
  double sum = 0;
  const std::vector<std::string> lines = absl::StrSplit(metrics, '\n');
  for (const std::string& line : lines)
    if (line.starts_with(name) && Has(line, label)) sum += std::stod(line.substr(line.rfind(' ')));
  return sum;
}

TEST_CASE("a request that is late gets 504, and its work ends") {
  ApiFrontOptions options;
  std::string lines = Timeout("100");
  SECTION("by its own deadline") {}
  SECTION("by the server's, when it asks for more") {
    options.request_timeout = absl::Milliseconds(100);
    lines = Timeout("60000");
  }
  SECTION("by the server's, when it asks for none") {
    options.request_timeout = absl::Milliseconds(100);
    lines = "";
  }
  Served served({}, options);
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", R"({"prompt":[5],"max_tokens":9,"n":2})", lines)));
  REQUIRE(client.ReadUntil("}}"));
  INFO(client.received);
  CHECK(client.received.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"));
  CHECK(Has(client.received, "\"code\":\"timeout\""));
  CHECK(Has(client.received, "within 100ms"));
  CHECK(Has(client.received, "X-Should-Retry: false"));
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 2; }));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
  const std::string metrics = served.Metrics();
  CHECK(Has(metrics, "outcome=\"deadline\""));
  CHECK(SumOf(metrics, "baton_slo_requests_total{met=\"false\"", "slo=\"all\"") == 1);
  CHECK(SumOf(metrics, "baton_slo_requests_total", "met=\"true\"") == 0);
  CHECK(SumOf(metrics, "baton_goodput_tokens_total", "") == 0);
  CHECK(SumOf(metrics, "baton_requests_ended_total", "reason=\"length\"") == 0);
  // The connection goes on, and so does a request that has time.
  served.generator->hold = false;
  client.received.clear();
  REQUIRE(
      client.Send(Post("/v1/completions", R"({"prompt":[5],"max_tokens":2})", Timeout("9999"))));
  CHECK(client.ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("a stream that is late ends with an error") {
  Served served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", kLongStream, Timeout("500"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  served.On([&] {
    served.generator->StepAll();
    return 0;
  });
  REQUIRE(client.ReadUntil("data: "));
  REQUIRE(client.ReadUntil("data: [DONE]"));
  INFO(client.received);
  CHECK(client.received.starts_with("HTTP/1.1 200"));
  CHECK(Has(client.received, "\"code\":\"timeout\""));
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  // The first token was in time, the answer was not.
  const std::string metrics = served.Metrics();
  CHECK(SumOf(metrics, "baton_slo_requests_total{met=\"false\"", "slo=\"all\"") == 1);
  CHECK(SumOf(metrics, "baton_goodput_tokens_total", "") == 0);
}

TEST_CASE("deadlines pass in the order of time, and those that ended are no more") {
  Served served;
  served.generator->hold = true;
  RawClient late(served.port), later(served.port), gone(served.port);
  const std::string body = R"({"prompt":[5],"max_tokens":9})";
  REQUIRE(later.Send(Post("/v1/completions", body, Timeout("400"))));
  REQUIRE(gone.Send(Post("/v1/completions", body, Timeout("200"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
  gone.Close();
  REQUIRE(late.Send(Post("/v1/completions", body, Timeout("100"))));
  CHECK(late.ReadUntil("HTTP/1.1 504"));
  CHECK(later.received.empty());
  CHECK(later.ReadUntil("HTTP/1.1 504"));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
}

TEST_CASE("a timeout that is none is refused before the body is read") {
  for (const char* value : {"0", "-1", "1.5", "10s", "x", "86400001", "99999999999999999999"}) {
    INFO(value);
    Served served;
    RawClient client(served.port);
    REQUIRE(client.Send(
        absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n",
                     Timeout(value), "\r\n")));
    CHECK(client.ReadUntil("\"param\":\"x-request-timeout-ms\""));
    CHECK(client.received.starts_with("HTTP/1.1 400"));
  }
}

}  // namespace
}  // namespace baton
