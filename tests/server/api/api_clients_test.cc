// Connections of misbehaving API clients: slow, silent, closed, or too many.
#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

TEST_CASE("slow clients run into deadlines") {
  HttpServerOptions http;
  http.header_timeout = absl::Milliseconds(150);
  http.body_timeout = absl::Milliseconds(150);
  http.slow_body_grace = absl::Milliseconds(200);
  http.idle_timeout = absl::Milliseconds(200);
  Served served(http);
  RawClient silent(served.port), header(served.port), body(served.port), drip(served.port),
      idle(served.port);
  REQUIRE(header.Send("GET /health HT"));
  REQUIRE(body.Send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{"));
  REQUIRE(idle.Send(Get("/livez")));
  CHECK(silent.ReadToEnd());
  CHECK(silent.received.empty());
  CHECK(header.ReadToEnd());
  CHECK(header.received.find("HTTP/1.1 408") == 0);
  CHECK(body.ReadToEnd());
  CHECK(body.received.find("HTTP/1.1 408") == 0);
  CHECK(idle.ReadToEnd());
  CHECK(idle.received.find("HTTP/1.1 200") == 0);
  // Never idle for long, but too slow: a byte every few milliseconds.
  RawClient slow(served.port);
  slow.Send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15000\r\n\r\n");
  bool cut_off = false;
  for (int i = 0; i < 2000 && !cut_off; ++i) {
    slow.Send("x");
    cut_off = slow.ReadUntil("HTTP/1.1 408", absl::Milliseconds(5));
  }
  CHECK(cut_off);
  // A slow header does not get more time with each byte.
  RawClient trickle(served.port);
  bool refused = false;
  for (int i = 0; i < 200 && !refused; ++i) {
    trickle.Send(i == 0 ? "G" : "E");
    refused = trickle.ReadUntil("HTTP/1.1 408", absl::Milliseconds(10));
  }
  CHECK(refused);
}

TEST_CASE("a client that goes away is cancelled at once") {
  Served served;
  served.generator->hold = true;
  SECTION("before the first token, streaming") {
    RawClient client(served.port);
    REQUIRE(client.Send(Post("/v1/completions", kLongStream)));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
    client.Close();
  }
  SECTION("before the answer, not streaming") {
    RawClient client(served.port);
    REQUIRE(client.Send(Post("/v1/completions", R"({"prompt":[5],"max_tokens":9})")));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
    client.Close();
  }
  SECTION("in the middle of the stream") {
    RawClient client(served.port);
    REQUIRE(client.Send(Post("/v1/completions", kLongStream)));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
    REQUIRE(client.ReadUntil("data: "));
    client.Close();
  }
  SECTION("half-closed, which means gone by default") {
    RawClient client(served.port);
    REQUIRE(client.Send(Post("/v1/completions", kLongStream)));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
    client.HalfClose();
    REQUIRE(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  }
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
  CHECK(served.Metrics().find("outcome=\"canceled\"") != std::string::npos);
}

TEST_CASE("half-closed clients get their answer when the operator says so") {
  HttpServerOptions http;
  http.finish_half_closed = true;
  Served served(http);
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", kStream)));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  client.HalfClose();
  absl::SleepFor(absl::Milliseconds(50));
  for (int i = 0; i < 3; ++i) {
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
  }
  CHECK(client.ReadToEnd());
  CHECK(client.received.find("[DONE]") != std::string::npos);
  CHECK(served.generator->n_cancelled == 0);
}

TEST_CASE("a client that does not read is cancelled at a bound") {
  HttpServerOptions http;
  http.max_unsent = 100000;
  Served served(http);
  served.generator->endless = true;  // more bytes than any socket buffer holds
  RawClient client(served.port);
  client.SetReceiveBuffer(4096);
  REQUIRE(client.Send(Post("/v1/completions", kLongStream)));
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
}

TEST_CASE("what a stream tells of its prompts is no reason to cancel a client that reads") {
  Served served;
  std::vector<int32_t> prompt(4000, 5);
  prompt.back() = 6;
  const std::string ids = absl::StrCat("[", absl::StrJoin(prompt, ","), "]");
  const auto request = [&](int max_tokens) {
    return Post("/v1/completions", absl::StrCat(R"({"prompt":[)", ids, ",", ids,
                                                R"(],"prompt_logprobs":15,"stream":true,)",
                                                R"("max_tokens":)", max_tokens, "}"));
  };
  RawClient reader(served.port);
  REQUIRE(reader.Send(request(2)));
  CHECK(reader.ReadUntil("data: [DONE]\n\n"));
  CHECK(reader.received.size() > 4 * HttpServerOptions().max_unsent);  // beyond any socket buffer
  CHECK(served.generator->n_cancelled == 0);
  served.generator->endless = true;
  RawClient idler(served.port);
  idler.SetReceiveBuffer(4096);
  REQUIRE(idler.Send(request(90)));
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 2; }));
}

TEST_CASE("a client that stops reading runs into the write deadline") {
  HttpServerOptions http;
  http.max_unsent = 100000000;
  http.write_timeout = absl::Milliseconds(200);
  Served served(http);
  served.generator->endless = true;
  RawClient client(served.port);
  client.SetReceiveBuffer(4096);
  REQUIRE(client.Send(Post("/v1/completions", kLongStream)));
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
}

TEST_CASE("a client that reads slowly, but reads, gets everything") {
  HttpServerOptions http;
  http.max_unsent = 100000000;
  http.write_timeout = absl::Milliseconds(300);
  Served served(http);
  ClientLimits limits;
  limits.receive_buffer = 8192;
  int n_events = 0;
  std::string last;
  const absl::Time start = absl::Now();
  const auto response =
      HttpClient({"127.0.0.1", served.port}, limits)
          .Post("/v1/completions", R"({"prompt":[5],"max_tokens":2000,"stream":true})",
                [&](std::string_view data, absl::Time) {
                  if (++n_events % 20 == 0) absl::SleepFor(absl::Milliseconds(20));
                  last = std::string(data);
                  return true;
                });
  INFO((response.ok() ? "" : std::string(response.status().message())));
  CHECK(response.ok());
  CHECK(last == "[DONE]");
  CHECK(absl::Now() - start > 4 * http.write_timeout);
}

TEST_CASE("silence is filled with blank lines, which no client takes for an event") {
  ApiFrontOptions options;
  options.sse_keepalive = absl::Milliseconds(50);
  Served served({}, options);
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", kStream)));
  REQUIRE(client.ReadUntil("3\r\n\n\n\n\r\n3\r\n\n\n\n\r\n"));
  CHECK(client.received.find("data:") == std::string::npos);
  for (int i = 0; i < 3; ++i) {
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
  }
  REQUIRE(client.ReadUntil("[DONE]"));
}

TEST_CASE("/metrics is made four times a second at most, and is never older than its question") {
  Served served;
  const absl::Time start = absl::Now();
  for (int workers = 1; workers <= 4; ++workers) {
    served.On([&] { return served.generator->view.prefill_workers = workers; });
    const std::string line = absl::StrCat(
        "baton_workers{model=\"demo\",prefers=\"prefill\",role=\"router\"} ", workers, "\n");
    INFO(line);
    CHECK(served.Metrics().find(line) != std::string::npos);
  }
  CHECK(absl::Now() - start >= 3 * absl::Milliseconds(240));
  // Clients that ask at the same time get the same page.
  std::vector<std::unique_ptr<RawClient>> many;
  const absl::Time asked = absl::Now();
  for (int i = 0; i < 20; ++i) {
    many.push_back(std::make_unique<RawClient>(served.port));
    REQUIRE(many.back()->Send(Get("/metrics", "Connection: close\r\n")));
  }
  for (const auto& one : many) {
    REQUIRE(one->ReadToEnd());
    CHECK(one->received.find("baton_workers{") != std::string::npos);
  }
  CHECK(absl::Now() - asked < absl::Seconds(5));  // 20 pages in sequence would take longer
}

TEST_CASE("text jobs of clients that went away are not run, and take no place") {
  Served served;  // one text thread, at most 64 waiting jobs, 22 of one key
  std::promise<void> release;
  std::shared_future<void> released = release.get_future();
  CHECK(served.pool->TryRun({}, 0, [released] { released.wait(); }));
  // A job that waits takes a place, and leaves fewer to others.
  REQUIRE(served.WaitFor([&] { return served.pool->load().jobs == 0; }));
  std::string prompt;
  for (int i = 0; i < 1000; ++i) prompt += "ducks ";
  const std::string body = absl::StrCat(R"({"max_tokens":2,"prompt":")", prompt, R"("})");
  {
    std::vector<std::unique_ptr<RawClient>> leavers;
    for (int i = 0; i < 22; ++i) {
      leavers.push_back(std::make_unique<RawClient>(served.port));
      REQUIRE(leavers.back()->Send(Post("/v1/completions", body)));
    }
    REQUIRE(served.WaitFor([&] { return served.pool->load().jobs == 22; }));
    RawClient beyond(served.port);
    REQUIRE(beyond.Send(Post("/v1/completions", body)));
    CHECK(beyond.ReadUntil("HTTP/1.1 429"));
  }
  REQUIRE(served.WaitFor([&] { return served.server->n_connections() == 0; }));
  CHECK(served.pool->load() == TextPool::Load());
  RawClient stays(served.port);
  REQUIRE(stays.Send(Post("/v1/completions", body)));
  CHECK_FALSE(stays.ReadUntil("HTTP/1.1 429", absl::Milliseconds(200)));
  release.set_value();
  CHECK(stays.ReadUntil("HTTP/1.1 200"));
  CHECK(served.generator->n_submitted == 1);
}

TEST_CASE("too many connections are refused with 503") {
  HttpServerOptions http;
  http.max_connections = 2;
  http.max_per_address = 2;
  Served served(http);
  served.generator->hold = true;
  RawClient a(served.port), b(served.port);
  REQUIRE(a.Send(Post("/v1/completions", kStream)));
  REQUIRE(b.Send(Post("/v1/completions", kStream)));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
  RawClient c(served.port);
  CHECK(c.ReadToEnd());
  CHECK(c.received.find("HTTP/1.1 503") == 0);
}

}  // namespace
}  // namespace baton
