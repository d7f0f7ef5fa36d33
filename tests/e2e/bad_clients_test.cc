// One client must not harm the others, tested on real processes: requests at the API's own limits,
// answers to bytes that are not text, workers that are told to stop twice.

#include <signal.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

std::unique_ptr<ServedBaton> Serve(const std::vector<std::string>& args) {
  auto served = ServedBaton::Start(args);
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  return *std::move(served);
}

json::value Parse(const std::string& text) {
  json::error_code bad;
  json::value value = json::parse(text, bad);  // fails on invalid UTF-8
  INFO(text);
  REQUIRE_FALSE(bad);
  return value;
}

TEST_CASE(
    "a request with as many stop tokens as the API takes is answered, and no worker is lost") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  std::string ids;  // ascending from an id of the model that this answer does not contain
  for (int i = 0; i < 1024; ++i) absl::StrAppend(&ids, i == 0 ? "" : ",", 100 + i);
  const auto response =
      client.Post("/v1/completions",
                  absl::StrCat(R"({"prompt":"a","max_tokens":4,"temperature":0,"stop_token_ids":[)",
                               ids, "]}"));
  REQUIRE(response.ok());
  INFO(response->body);
  CHECK(response->status == 200);
  CHECK(served->log().find("stream to router") == std::string::npos);
  CHECK(MetricSum(client, "baton_failovers_total") == 0);
  // A thousand equal ids count as one.
  std::string again = ids;
  absl::StrAppend(&again, ",", ids);
  CHECK(client
            .Post("/v1/completions",
                  absl::StrCat(R"({"prompt":"a","max_tokens":4,"stop_token_ids":[)", again, "]}"))
            ->status == 200);
}

TEST_CASE("fields of the API that are not built are refused, not ignored") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const auto response = served->client().Post(
      "/v1/completions", R"({"prompt":"a","max_tokens":4,"extra_key":"tenant 2"})");
  REQUIRE(response.ok());
  CHECK(response->status == 400);
  CHECK(Parse(response->body).at("error").at("param") == "extra_key");
}

TEST_CASE("answers are UTF-8 whatever came in") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  for (const char* path : {"/v1/models/%FF", "/v1/models/a%C3", "/v1/models/%ED%A0%80%F0%9F"}) {
    INFO(path);
    const auto response = client.Get(path);
    REQUIRE(response.ok());
    CHECK(response->status == 404);
    Parse(response->body);
  }
}

TEST_CASE("a deadline that passes frees the KV of its request") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  const std::string body = StreamBody("Tell me a long story.", 3000);
  const auto free_pages = [&] { return MetricSum(client, "baton_cluster_kv_free_pages"); };
  double idle = 0;
  for (const bool is_first : {true, false}) {  // the first one leaves workers with pages they lent
    std::string error;
    const auto response = client.Post("/v1/completions", body,
                                      [&](std::string_view data, absl::Time) {
                                        if (data.find("\"error\"") != std::string_view::npos)
                                          error = std::string(data);
                                        return data != "[DONE]";
                                      },
                                      {{"X-Request-Timeout-Ms", "400"}});
    REQUIRE(response.ok());
    INFO(response->body << error);
    if (response->status != 504) CHECK(error.find("\"timeout\"") != std::string::npos);
    if (is_first) {
      absl::SleepFor(absl::Seconds(1));
      idle = free_pages();
    }
  }
  CHECK(WaitUntil(absl::Seconds(5), [&] { return free_pages() == idle; }));
  CHECK(WaitUntil(absl::Seconds(5),
                  [&] { return MetricSum(client, "baton_requests_running") == 0; }));
  CHECK(MetricSum(client, "baton_cancels_overdue_total") == 0);
}

// Returns the port of a worker's own page from the log.
int MetricsPort(const ServedBaton& served, const std::string& worker) {
  const std::string log = served.log();
  const std::string mark = "metrics on http://127.0.0.1:";
  for (size_t at = 0; (at = log.find(mark, at)) != std::string::npos; at += mark.size()) {
    const size_t line = log.rfind('\n', at) + 1;
    if (log.substr(line, at - line).find(worker) != std::string::npos)
      return std::stoi(log.substr(at + mark.size()));
  }
  return 0;
}

TEST_CASE("a worker that drains is seen, and a second SIGTERM ends its drain now") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo", "--prefill", "1", "--decode", "1"});
  const HttpClient client = served->client();
  const int port = MetricsPort(*served, "decode0");
  REQUIRE(port > 0);
  const pid_t worker = served->Child("decode");
  std::atomic<int> n_chunks = 0;
  std::string last;
  std::thread stream([&] {
    const auto response = client.Post("/v1/completions", StreamBody("Tell me a story.", 3000),
                                      [&](std::string_view data, absl::Time) {
                                        ++n_chunks;
                                        last = std::string(data);
                                        return data != "[DONE]";
                                      });
    CHECK(response.ok());
  });
  REQUIRE(WaitUntil(absl::Seconds(20), [&] { return n_chunks >= 20; }));
  ::kill(worker, SIGTERM);
  const HttpClient page(HttpUrl{"127.0.0.1", port}, absl::Seconds(5));
  const auto status_of = [&](const char* path) {
    const auto response = page.Get(path);
    return response.ok() ? response->status : 0;
  };
  CHECK(WaitUntil(absl::Seconds(5), [&] { return status_of("/readyz") == 503; }));
  CHECK(status_of("/livez") == 200);
  CHECK(MetricSum(page, "baton_worker_decode_rows") >= 0);
  const int before = n_chunks;
  CHECK(served->Child("decode") == worker);  // the stream still runs there
  ::kill(worker, SIGTERM);
  CHECK(WaitUntil(absl::Seconds(5), [&] { return served->Child("decode") != worker; }));
  CHECK(before < 3000);
  stream.join();
  CHECK(last == "[DONE]");  // by the replacement worker
}

TEST_CASE("the request that is printed at the start has the right answer each time") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  REQUIRE(served->WaitForLog("try:   curl", absl::Seconds(10)));
  const std::string log = served->log();
  const size_t begin = log.find("-d '", log.find("try:   curl")) + 4;
  json::value body = Parse(log.substr(begin, log.find('\'', begin) - begin));
  CHECK(body.at("temperature") == 0);
  body.as_object()["stream"] = false;
  for (int i = 0; i < 10; ++i) {
    const auto response = served->client().Post("/v1/chat/completions", json::serialize(body));
    REQUIRE(response.ok());
    const json::value answer = Parse(response->body);
    const std::string text(answer.at("choices").at(0).at("message").at("content").as_string());
    INFO(text);
    CHECK(text.find("42") != std::string::npos);
  }
}

}  // namespace
}  // namespace baton
