// Answers of the API, and its errors for malformed and failing requests.
#include "server/api/api_front.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

TEST_CASE("completions, whole and streamed") {
  Served served;
  const HttpClient client = served.Client();
  const auto whole = client.Post("/v1/completions", R"({"prompt":"a","max_tokens":4})");
  REQUIRE(whole.ok());
  CHECK(whole->status == 200);
  CHECK(whole->headers.at("content-type") == "application/json");
  const json::value body = json::parse(whole->body);
  CHECK(body.at("usage").at("completion_tokens") == 4);
  CHECK(body.at("choices").at(0).at("finish_reason") == "length");

  std::vector<std::string> events;
  const auto streamed =
      client.Post("/v1/completions", kStream, [&](std::string_view data, absl::Time) {
        events.emplace_back(data);
        return true;
      });
  REQUIRE(streamed.ok());
  CHECK(streamed->headers.at("content-type") == "text/event-stream; charset=utf-8");
  CHECK(streamed->headers.at("cache-control") == "no-cache");
  CHECK(streamed->headers.at("x-accel-buffering") == "no");
  REQUIRE(events.size() == 5);
  CHECK(events.back() == "[DONE]");

  const auto chat = client.Post("/v1/chat/completions",
                                R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2})");
  REQUIRE(chat.ok());
  CHECK(json::parse(chat->body).at("choices").at(0).at("message").at("role") == "assistant");
}

TEST_CASE("long prompts go through the text pool to the same answer") {
  Served served;
  std::string prompt;
  for (int i = 0; i < 1000; ++i) prompt += "ducks ";
  const auto response =
      served.Client().Post("/v1/completions", R"({"max_tokens":2,"prompt":")" + prompt + R"("})");
  REQUIRE(response.ok());
  CHECK(response->status == 200);
}

TEST_CASE("the plain routes") {
  Served served;
  const HttpClient client = served.Client();
  for (const char* path : {"/health", "/v1/health", "/readyz", "/livez", "/ping"}) {
    INFO(path);
    CHECK(client.Get(path)->status == 200);
  }
  CHECK(client.Get("/version")->body == R"({"version":"test"})");
  const json::value models = json::parse(client.Get("/v1/models")->body);
  CHECK(models.at("data").at(0).at("id") == "demo");
  CHECK(models.at("data").at(0).at("max_model_len") == 4096);
  CHECK(json::parse(client.Get("/v1/models/demo")->body).at("object") == "model");
  const auto unknown = client.Get("/v1/models/other%2Fone");
  CHECK(unknown->status == 404);
  CHECK(json::parse(unknown->body).at("error").at("message") ==
        "The model `other/one` does not exist.");
  const auto nothing = client.Get("/nothing");
  CHECK(nothing->status == 404);
  const json::value error = json::parse(nothing->body).at("error");
  CHECK(error.at("code") == "not_found");
  CHECK(error.at("type") == "invalid_request_error");
  CHECK(error.at("message") ==
        "There is no endpoint GET /nothing; paths of the API begin with /v1/, as POST "
        "/v1/completions.");
  const std::string long_path = "/" + std::string(1000, 'x');
  const auto elsewhere = client.Post(long_path, "{}");
  CHECK(elsewhere->status == 404);
  const std::string message(json::parse(elsewhere->body).at("error").at("message").as_string());
  CHECK(message.starts_with("There is no endpoint POST /xxx"));
  CHECK(message.size() < 300);
  CHECK(client.Get("/v1/completions")->status == 405);
  CHECK(client.Post("/health", "{}")->status == 405);
}

TEST_CASE("not ready: 503 everywhere but /livez, and 429 when the queue is full") {
  Served served;
  served.On([&] {
    served.generator->view = ClusterView();
    served.generator->refusal = absl::UnavailableError("no worker");
    return 0;
  });
  const HttpClient client = served.Client();
  CHECK(client.Get("/livez")->status == 200);
  CHECK(client.Get("/health")->status == 503);
  const auto loading = client.Post("/v1/completions", R"({"prompt":"a"})");
  CHECK(loading->status == 503);
  CHECK(json::parse(loading->body).at("error").at("code") == "model_loading");
  served.On([&] {
    served.generator->refusal = absl::ResourceExhaustedError("1024 requests are waiting");
    return 0;
  });
  const auto busy = client.Post("/v1/completions", R"({"prompt":"a"})");
  CHECK(busy->status == 429);
  CHECK(busy->headers.at("retry-after") == "1");
  CHECK(json::parse(busy->body).at("error").at("type") == "rate_limit_error");
}

TEST_CASE("keep-alive, pipelining, HEAD, OPTIONS, request ids") {
  Served served({}, AnyOrigin());
  RawClient client(served.port);
  // Three requests at once: answers in order, none lost, none interleaved.
  REQUIRE(client.Send(Get("/version") + Post("/v1/completions", kStream) +
                      Get("/livez", "X-Request-Id: my-id.1\r\n")));
  REQUIRE(client.ReadUntil("my-id.1"));
  REQUIRE(client.ReadUntil("{\"status\":\"ok\"}"));
  const size_t version = client.received.find("{\"version\"");
  const size_t done = client.received.find("[DONE]\n\n\r\n0\r\n\r\n");
  REQUIRE(done != std::string::npos);
  CHECK(version < done);
  CHECK(done < client.received.find("my-id.1"));
  client.received.clear();

  REQUIRE(client.Send("HEAD /version HTTP/1.1\r\nHost: a\r\n\r\n" + Get("/livez")));
  REQUIRE(client.ReadUntil("{\"status\":\"ok\"}"));
  CHECK(client.received.find("{\"version\"") == std::string::npos);
  CHECK(client.received.find("Content-Length: 18") != std::string::npos);
  client.received.clear();

  REQUIRE(client.Send("OPTIONS /v1/completions HTTP/1.1\r\nHost: a\r\nOrigin: http://o\r\n\r\n"));
  REQUIRE(client.ReadUntil("\r\n\r\n"));
  CHECK(client.received.find("HTTP/1.1 200") == 0);
  CHECK(client.received.find("Access-Control-Allow-Origin: *") != std::string::npos);
  client.received.clear();

  REQUIRE(client.Send(Get("/livez", "X-Request-Id: bad id\"\r\nConnection: close\r\n")));
  REQUIRE(client.ReadToEnd());
  CHECK(client.received.find("bad id") == std::string::npos);
  CHECK(client.received.find("Connection: close") != std::string::npos);

  RawClient old(served.port);
  REQUIRE(
      old.Send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
               "Content-Length: " +
               std::to_string(kStream.size()) + "\r\n\r\n" + kStream));
  REQUIRE(old.ReadToEnd());
  CHECK(old.received.find("chunked") == std::string::npos);
  CHECK(old.received.find("[DONE]\n\n") == old.received.size() - 8);
}

TEST_CASE("Expect: 100-continue, and final answers before the body") {
  Served served;
  RawClient polite(served.port);
  const std::string body = R"({"prompt":[5],"max_tokens":1})";
  const std::string head =
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                   "Content-Length: ", body.size(), "\r\nExpect: 100-continue\r\n\r\n");
  REQUIRE(polite.Send(head));
  REQUIRE(polite.ReadUntil("100 Continue\r\n\r\n"));
  REQUIRE(polite.Send(body));
  CHECK(polite.ReadUntil("HTTP/1.1 200"));

  for (const auto& [request, status] : std::vector<std::pair<std::string, std::string>>{
           {"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            "Expect: 100-continue\r\n\r\n",
            "404"},
           {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n"
            "Expect: 100-continue\r\n\r\n",
            "413"},
           {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            "Content-Type: text/html\r\n\r\n",
            "415"},
           {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            "Content-Encoding: gzip\r\n\r\n",
            "415"}}) {
    INFO(request);
    RawClient client(served.port);
    REQUIRE(client.Send(request));
    REQUIRE(client.ReadToEnd());
    CHECK(client.received.find("HTTP/1.1 " + status) == 0);
    CHECK(client.received.find("100 Continue") == std::string::npos);
    CHECK(client.received.find("\"error\"") != std::string::npos);
  }
}

TEST_CASE(
    "malformed and oversized input is answered in the OpenAI shape, and harms no other request") {
  HttpServerOptions http;
  http.limits.max_body = 20000;
  Served served(http);
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"GARBAGE\r\n\r\n", "400"},
      {std::string("\x16\x03\x01\x00\xa5\x01\x00\x00", 8), "400"},
      {"GET / HTTP/9.9\r\n\r\n", "505"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
      {"GET /health HTTP/1.1\r\nHost: a\r\nX: " + std::string(100000, 'y') + "\r\n\r\n", "431"},
      {Post("/v1/completions", std::string(20001, ' ')), "413"},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       "400"},
      {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" +
           std::string(0x5000, 'x') + "\r\n0\r\n\r\n",
       "413"},
      {Post("/v1/completions", "{\"prompt\":"), "400"},
      {Post("/v1/completions", "{\"prompt\":\"\xff\"}"), "400"},
      {Post("/v1/completions", std::string(19000, '[')), "400"},
      {Post("/v1/completions", R"({"prompt":"a","model":"nope"})"), "404"},
      {Post("/v1/completions", ""), "400"},
  };
  for (const auto& [bytes, status] : kCases) {
    INFO(bytes.substr(0, 100));
    RawClient client(served.port);
    client.Send(bytes);  // the answer may cut it off
    REQUIRE(client.ReadUntil("\r\n\r\n{\"error\":{\"message\":"));
    CHECK(client.received.find("HTTP/1.1 " + status) == 0);
  }
  CHECK(served.Client().Get("/health")->status == 200);
  CHECK(served.generator->n_submitted == 0);
}

TEST_CASE("answers are UTF-8 whatever came in") {
  Served served;
  const auto body_of = [&](const std::string& request) {
    RawClient client(served.port);
    client.Send(request);
    client.ReadToEnd();
    const size_t head = client.received.find("\r\n\r\n");
    return head == std::string::npos ? std::string() : client.received.substr(head + 4);
  };
  const auto check = [&](const std::string& request) {
    const std::string body = body_of(request);
    INFO(request << "\n" << body);
    json::error_code bad;
    const json::value answer = json::parse(body, bad);  // fails on invalid UTF-8
    REQUIRE_FALSE(bad);
    CHECK_FALSE(answer.at("error").at("message").as_string().empty());
  };
  const std::string close = "Connection: close\r\n";
  for (const char* id : {"%FF", "a%C3", "%ED%A0%80", "%F0%9F%98", "%80%80", "%E2%82%ACuro%C3%28"})
    check(Get(absl::StrCat("/v1/models/", id), close));
  // A doubled key, and a wrong value, that are truncated in the message at every position inside a
  // character.
  for (const char* character : {"\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\xA6\x86"}) {
    for (size_t before = 0; before < 5; ++before) {
      std::string text(before, 'a');
      for (int i = 0; i < 60; ++i) text += character;
      check(Post("/v1/completions", absl::StrCat("{\"", text, "\":1,\"", text, "\":2}"), close));
      check(Post("/v1/completions", absl::StrCat(R"({"prompt":"a","max_tokens":")", text, "\"}"),
                 close));
      check(
          Post("/v1/completions", absl::StrCat(R"({"prompt":"a","model":")", text, "\"}"), close));
    }
  }
}

TEST_CASE("failures: an error object before the stream began, an error event afterwards") {
  Served served;
  served.generator->hold = true;
  RawClient early(served.port), late(served.port);
  REQUIRE(early.Send(Post("/v1/completions", kStream)));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  served.On([&] {
    served.generator->FailAll(absl::InternalError("/secret"));
    return 0;
  });
  REQUIRE(early.ReadUntil("server_error"));
  CHECK(early.received.find("HTTP/1.1 500") == 0);
  CHECK(early.received.find("secret") == std::string::npos);

  REQUIRE(late.Send(Post("/v1/completions", kStream)));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
  served.On([&] {
    served.generator->StepAll();
    served.generator->FailAll(absl::UnavailableError("every worker is gone"));
    return 0;
  });
  REQUIRE(late.ReadUntil("0\r\n\r\n"));
  CHECK(late.received.find("HTTP/1.1 200") == 0);
  CHECK(late.received.find("data: {\"error\":{\"message\":\"every worker is gone\"") !=
        std::string::npos);
  CHECK(late.received.find("data: [DONE]\n\n") != std::string::npos);

  // A failure before the first byte has the status of its cause.
  RawClient lost(served.port);
  REQUIRE(lost.Send(Post("/v1/completions", kStream)));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 3; }));
  served.On([&] {
    served.generator->FailAll(absl::UnavailableError("every worker is gone"));
    return 0;
  });
  REQUIRE(lost.ReadUntil("no_workers"));
  CHECK(lost.received.find("HTTP/1.1 503") == 0);
  // Metrics tell the statuses that the clients got.
  const std::string metrics = served.Metrics();
  const auto counted = [&](const std::string& code, const std::string& outcome) {
    return metrics.find(absl::StrCat("baton_requests_total{code=\"", code,
                                     R"(",endpoint="completions",model="demo",outcome=")", outcome,
                                     R"(",role="router",stream="true"} 1)")) != std::string::npos;
  };
  CHECK(counted("500", "internal"));
  CHECK(counted("200", "internal"));
  CHECK(counted("503", "overload"));
}

TEST_CASE("draining: running streams end whole, new requests get 503, then it is done") {
  Served served;
  served.generator->hold = true;
  RawClient running(served.port), idle(served.port), next(served.port);
  REQUIRE(running.Send(Post("/v1/completions", kStream)));
  REQUIRE(idle.Send(Get("/livez")));
  REQUIRE(idle.ReadUntil("ok"));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  std::atomic<bool> drained = false;
  served.On([&] {
    served.front->Drain([&] { drained = true; });
    return 0;
  });
  CHECK(idle.ReadToEnd());
  RawClient late(served.port);
  REQUIRE(late.Send(Post("/v1/completions", kStream)));
  REQUIRE(late.ReadToEnd());
  CHECK(late.received.find("HTTP/1.1 503") == 0);
  CHECK(late.received.find("Connection: close") != std::string::npos);
  CHECK_FALSE(drained);
  for (int i = 0; i < 3; ++i) {
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
  }
  CHECK(running.ReadToEnd());
  CHECK(running.received.find("[DONE]") != std::string::npos);
  CHECK(served.WaitFor([&] { return drained.load(); }));
}

TEST_CASE("metrics count what happened under both families' names") {
  Served served;
  const HttpClient client = served.Client();
  REQUIRE(client.Post("/v1/completions", R"({"prompt":[5,6],"max_tokens":4})")->status == 200);
  REQUIRE(client.Post("/v1/completions", R"({"prompt":7})")->status == 400);
  served.On([&] { return served.generator->view.relays_by_push = {2, 0, 0}; });
  served.Metrics();
  served.On([&] { return served.generator->view.relays_by_push = {2, 1, 0}; });
  served.On([&] { return served.generator->view.ranks_replaced = 1; });
  served.On([&] { return served.generator->view.sinks_replaced = 2; });
  served.On([&] { return served.generator->view.recomputed_tokens[0] = 64; });
  const std::string text = served.Metrics();
  for (const char* line : {
           "vllm:prompt_tokens_total{engine=\"0\",model_name=\"demo\"} 2\n",
           "vllm:generation_tokens_total{engine=\"0\",model_name=\"demo\"} 4\n",
           "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"demo\"}"
           " 1\n",
           "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"demo\"} 1\n",
           "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"demo\"} 3\n",
           "baton_relays_total{model=\"demo\",push=\"all\",role=\"router\"} 2\n",
           "baton_relays_total{model=\"demo\",push=\"tail\",role=\"router\"} 1\n",
           "baton_relay_ranks_replaced_total{model=\"demo\",role=\"router\"} 1\n",
           "baton_relay_sinks_replaced_total{model=\"demo\",role=\"router\"} 2\n",
           "baton_recompute_tokens_total{model=\"demo\",reason=\"worker_lost\",role=\"router\"} "
           "64\n",
           "baton_recompute_tokens_total{model=\"demo\",reason=\"preempted\",role=\"router\"} 0\n",
           "baton_ready{component=\"cluster\",model=\"demo\",role=\"router\"} 1\n",
           "# TYPE vllm:e2e_request_latency_seconds histogram\n",
           "le=\"1.0\"",
           "le=\"2560.0\"",
           "le=\"+Inf\"",
           "outcome=\"client_error\"",
       }) {
    INFO(line);
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("metrics count what is refused before it is a request for tokens, by few labels") {
  Served served;
  const auto count = [&served](const char* endpoint, int code) {
    const std::string text = served.Metrics();
    const std::string row =
        absl::StrCat("baton_requests_total{code=\"", code, "\",endpoint=\"", endpoint, "\"");
    const size_t at = text.find(row);
    return at == std::string::npos ? 0 : std::stoi(text.substr(text.find("} ", at) + 2));
  };
  const HttpClient client = served.Client();
  const std::string before = served.Metrics();
  REQUIRE(client.Get("/nothing/here")->status == 404);
  REQUIRE(client.Get("/nor/there")->status == 404);
  CHECK(count("unknown", 404) == 2);
  REQUIRE(client.Get("/v1/completions")->status == 405);
  CHECK(count("completions", 405) == 1);
  REQUIRE(client.Get("/v1/responses/resp_none")->status == 404);
  REQUIRE(client.Post("/health", "{}")->status == 405);
  CHECK(count("other", 404) == 1);
  CHECK(count("other", 405) == 1);
  const auto send = [&served](const std::string& head) {
    RawClient raw(served.port);
    REQUIRE(raw.Send(absl::StrCat("POST /v1/messages HTTP/1.1\r\nHost: a\r\n", head, "\r\n\r\n")));
    REQUIRE(raw.ReadToEnd());
  };
  send("Connection: close\r\nContent-Type: text/plain\r\nContent-Length: 0");
  CHECK(count("messages", 415) == 1);
  send("Content-Type: application/json\r\nContent-Length: 99999999999");
  CHECK(count("messages", 413) == 1);
  REQUIRE(client.Post("/v1/completions", R"({"prompt":7})")->status == 400);
  CHECK(count("completions", 400) == 1);  // once
}

TEST_CASE("64 clients at once") {
  Served served;
  std::vector<std::thread> threads;
  std::atomic<int> n_good = 0;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] {
      int n_events = 0;
      const auto response = served.Client().Post(
          "/v1/completions",
          absl::StrCat(R"({"prompt":[5],"stream":true,"max_tokens":)", 10 + i, "}"),
          [&](std::string_view, absl::Time) {
            ++n_events;
            return true;
          });
      if (response.ok() && n_events == 12 + i) ++n_good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_good == 64);
}

}  // namespace
}  // namespace baton
