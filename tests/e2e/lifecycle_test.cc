// The life of a served cluster seen from outside: it drains on SIGTERM without losing a request,
// frees everything of a client that goes away, refuses hostile requests without harm to others, and
// ends with a message with file and field when it cannot serve a model or configuration.

#include <sys/wait.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ServedBaton> Serve(const std::vector<std::string>& args) {
  auto served = ServedBaton::Start(args);
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  return *std::move(served);
}

// Ends the server and requires that no process of it failed a CHECK, died or was killed.
void RequireCleanEnd(ServedBaton& served) {
  const absl::StatusOr<int> status = served.Terminate();
  INFO(served.log());
  REQUIRE(status.ok());
  CHECK(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 0);
  CHECK(served.log().find("CHECK failed") == std::string::npos);
}

TEST_CASE("SIGTERM drains: 32 running streams of mixed length end whole, then it exits with 0") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  constexpr int kStreams = 32;
  std::atomic<int> n_started = 0;
  std::vector<int> n_chunks(kStreams, 0);
  std::vector<std::string> last(kStreams);
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      std::string prompt = "Tell me a story.";
      for (int words = 0; words < 40 * i; ++words) prompt += " duck";
      const auto response = client.Post("/v1/completions", StreamBody(prompt, 20 + 5 * i),
                                        [&, i](std::string_view data, absl::Time) {
                                          if (n_chunks[i]++ == 0) ++n_started;
                                          last[i] = std::string(data);
                                          return data != "[DONE]";
                                        });
      if (!response.ok()) last[i] = std::string(response.status().message());
    });
  }
  REQUIRE(WaitUntil(absl::Seconds(60), [&] { return n_started == kStreams; }));
  RequireCleanEnd(*served);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i) {
    INFO(i);
    CHECK(last[i] == "[DONE]");
  }
}

TEST_CASE("clients that go away in the middle free everything they held") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  const double pages_total = MetricSum(client, "baton_cluster_kv_capacity_pages");
  REQUIRE(pages_total > 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      int n = 0;
      const auto response = client.Post("/v1/completions", StreamBody("A long story:", 3000),
                                        [&](std::string_view, absl::Time) { return ++n <= i; });
      CHECK_NOTHROW(response.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Some clients leave before their first token: while they wait, or in the middle of the prompt.
  std::string body = StreamBody("A long story:", 3000);
  for (int words = 0; words < 1500; ++words) body.insert(body.find("A long"), "duck ");
  for (int i = 0; i < 8; ++i) {
    RawClient leaver(served->url().port);
    REQUIRE(
        leaver.Send(absl::StrFormat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                    "Content-Length: %d\r\n\r\n%s",
                                    body.size(), body)));
    absl::SleepFor(absl::Milliseconds(10 * i));
    leaver.Close();
  }
  CHECK(WaitUntil(absl::Seconds(10),
                  [&] { return MetricSum(client, "baton_requests_running") == 0; }));
  const auto released = [&] { return MetricSum(client, "baton_cancel_latency_seconds_count"); };
  CHECK(WaitUntil(absl::Seconds(10), [&] { return released() >= 16; }));
  const double mean = MetricSum(client, "baton_cancel_latency_seconds_sum") / released();
  WARN("cancel to the end of the last part: mean " << absl::FormatDuration(absl::Seconds(mean)));
  CHECK(mean < 1);  // milliseconds on an idle machine
  CHECK(MetricSum(client, "baton_cancels_overdue_total") == 0);
  CHECK(MetricSum(client, "baton_requests_started_total") ==
        MetricSum(client, "baton_requests_ended_total"));
  CHECK(WaitUntil(absl::Seconds(10),
                  [&] { return MetricSum(client, "baton_cluster_kv_free_pages") == pages_total; }));
  RequireCleanEnd(*served);
}

TEST_CASE("a killed worker comes back and its streams end with the right tokens") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  const auto text_of = [&](const std::function<void(int)>& on_chunk) {
    std::string text;
    int n = 0;
    const auto response =
        client.Post("/v1/completions", StreamBody("Tell me about a duck.", 200),
                    [&](std::string_view data, absl::Time) {
                      if (data == "[DONE]") return false;
                      const boost::json::value chunk =
                          boost::json::parse(boost::json::string_view(data.data(), data.size()));
                      if (chunk.as_object().contains("error")) {
                        text += std::string(data);
                      } else if (!chunk.at("choices").as_array().empty()) {
                        text += std::string(chunk.at("choices").at(0).at("text").as_string());
                      }
                      on_chunk(++n);
                      return true;
                    });
    return response.ok() ? text : std::string(response.status().message());
  };
  const std::string undisturbed = text_of([](int) {});
  const std::string disturbed = text_of([&](int n) {
    if (n == 20) REQUIRE(::kill(served->Child("decode"), SIGKILL) == 0);
  });
  CHECK(disturbed == undisturbed);
  CHECK(WaitUntil(absl::Seconds(20), [&] { return served->Child("decode") != 0; }));
  CHECK(text_of([](int) {}) == undisturbed);
  RequireCleanEnd(*served);
}

TEST_CASE(
    "a stopped worker: its streams go on elsewhere, exact, and it rejoins without a restart") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo", "--prefill", "1", "--decode", "2"});
  const HttpClient client = served->client();
  const std::vector<CrowdStream> undisturbed = RunCrowd(client, [] {});
  const pid_t stopped = served->Child("decode");
  const std::vector<CrowdStream> disturbed = RunCrowd(
      client, [&] { ::kill(stopped, SIGSTOP); },
      [&] { return MetricSum(client, "baton_failovers_total") >= 1; });
  absl::Duration longest;
  for (int i = 0; i < kCrowd; ++i) {
    INFO(i);
    CHECK(disturbed[i].text == undisturbed[i].text);
    longest = std::max(longest, disturbed[i].longest_gap);
  }
  WARN("longest gap with a stopped worker: " << absl::FormatDuration(longest));
  CHECK(longest > absl::Seconds(1));  // at least one stream was hit
  CHECK(longest < absl::Seconds(8));  // 5 s on an idle machine
  CHECK(MetricSum(client, "baton_workers") == 2);
  CHECK(MetricSum(client, "baton_failovers_total") >= 1);
  ::kill(stopped, SIGCONT);
  CHECK(WaitUntil(absl::Seconds(10), [&] { return MetricSum(client, "baton_workers") == 3; }));
  CHECK(served->Child("decode") == stopped);
  CHECK(served->log().find("starting it again") == std::string::npos);
  const std::vector<CrowdStream> afterwards = RunCrowd(client, [] {});
  for (int i = 0; i < kCrowd; ++i) CHECK(afterwards[i].text == undisturbed[i].text);
  const int requests = AnswersOf(undisturbed) + AnswersOf(disturbed) + AnswersOf(afterwards);
  CHECK(MetricSum(client, "baton_requests_started_total") == requests);
  CHECK(MetricSum(client, "baton_requests_ended_total") == requests);
  RequireCleanEnd(*served);
}

TEST_CASE("a worker told to stop finishes its streams, gets no new ones, and is started again") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo", "--prefill", "1", "--decode", "2"});
  const HttpClient client = served->client();
  const std::vector<CrowdStream> undisturbed = RunCrowd(client, [] {});
  const pid_t leaving = served->Child("decode");
  std::vector<CrowdStream> late;
  const std::vector<CrowdStream> disturbed = RunCrowd(client, [&] {
    ::kill(leaving, SIGTERM);
    late = RunCrowd(client, [] {});  // while the server drains, and after it is gone
  });
  for (int i = 0; i < kCrowd; ++i) {
    INFO(i);
    CHECK(disturbed[i].text == undisturbed[i].text);
    CHECK(late[i].text == undisturbed[i].text);
  }
  CHECK(served->WaitForLog("ended with status 0, starting it again", absl::Seconds(20)));
  CHECK(WaitUntil(absl::Seconds(20), [&] { return MetricSum(client, "baton_workers") == 3; }));
  CHECK(MetricSum(client, "baton_requests_started_total") ==
        MetricSum(client, "baton_requests_ended_total"));
  RequireCleanEnd(*served);
}

TEST_CASE("hostile requests get a 4xx in the OpenAI shape and harm no other request") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  const std::string long_prompt(200000, 'x');
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/v1/completions", ""},
      {"/v1/completions", "{"},
      {"/v1/completions", "[]"},
      {"/v1/completions", R"({"prompt": 7})"},
      {"/v1/completions", R"({"prompt": ""})"},
      {"/v1/completions", R"({"prompt": []})"},
      {"/v1/completions", R"({"prompt": [1, 2, 99999999]})"},
      {"/v1/completions", R"({"prompt": [-1]})"},
      {"/v1/completions", R"({"prompt": [1.5]})"},
      {"/v1/completions", R"({"prompt": "a", "model": "no-such-model"})"},
      {"/v1/completions", R"({"prompt": "a", "max_tokens": -1})"},
      {"/v1/completions", R"({"prompt": "a", "max_tokens": 1e300})"},
      {"/v1/completions", R"({"prompt": "a", "max_tokens": "many"})"},
      {"/v1/completions", R"({"prompt": "a", "temperature": -0.5})"},
      {"/v1/completions", R"({"prompt": "a", "top_p": 1.5})"},
      {"/v1/completions", R"({"prompt": "a", "stop": 5})"},
      {"/v1/completions", R"({"prompt": "a", "stream": "yes"})"},
      {"/v1/completions", R"({"prompt": "a", "max_tokens": 100000})"},
      {"/v1/completions", R"({"prompt": ")" + long_prompt + R"("})"},
      {"/v1/completions", "{\"prompt\": \"\xff\xfe\"}"},
      {"/v1/completions", std::string(2000, '[')},
      {"/v1/chat/completions", R"({"messages": "hello"})"},
      {"/v1/chat/completions", R"({"messages": []})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user"}]})"},
      {"/v1/chat/completions", R"({"messages": [{"content": "no role"}]})"},
      {"/v1/nothing", R"({"prompt": "a"})"},
  };
  for (const auto& [path, body] : requests) {
    INFO(path << " " << body.substr(0, 80));
    const absl::StatusOr<HttpResponse> response = client.Post(path, body);
    REQUIRE(response.ok());
    CHECK(response->status >= 400);
    CHECK(response->status < 500);
    boost::json::error_code bad;
    const boost::json::value value = boost::json::parse(response->body, bad);
    REQUIRE_FALSE(bad);
    const boost::json::object& error = value.at("error").as_object();
    CHECK_FALSE(error.at("message").as_string().empty());
    CHECK(error.at("type").is_string());
    CHECK(error.contains("param"));
    CHECK(error.contains("code"));
  }
  for (const std::string& bytes :
       {std::string("GARBAGE\r\n\r\n"), std::string("get / HTTP/1.1\r\n\r\n"),
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100000, 'y') + "\r\n\r\n",
        std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                    "99999999999\r\n\r\n")}) {
    const absl::StatusOr<std::string> answer = client.Raw(bytes);
    REQUIRE(answer.ok());
    INFO(bytes.substr(0, 60));
    CHECK(answer->starts_with("HTTP/1.1 4"));
  }
  for (const char* bytes : {"GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    const absl::StatusOr<std::string> answer = client.Raw(bytes);
    REQUIRE(answer.ok());
    CHECK(answer->starts_with("HTTP/1.1 505"));
    CHECK(answer->find("invalid_request_error") != std::string::npos);
  }
  const absl::StatusOr<HttpResponse> healthy =
      client.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  REQUIRE(healthy.ok());
  CHECK(healthy->status == 200);
  RequireCleanEnd(*served);
}

// Starts a server that must refuse to run. Returns its output.
std::string RefusedStart(const std::vector<std::string>& args) {
  const auto served = ServedBaton::Start(args);
  REQUIRE_FALSE(served.ok());
  CHECK(absl::IsAborted(served.status()));  // the server exited by itself and did not hang
  return std::string(served.status().message());
}

TEST_CASE("what cannot be served ends with a message that names file, field and mend") {
  const fs::path folder = fs::temp_directory_path() / absl::StrFormat("baton_bad_%d", ::getpid());
  fs::remove_all(folder);
  fs::copy(BATON_SOURCE_DIR "/models/demo", folder, fs::copy_options::recursive);
  const auto copy_of_weights = [&] {
    fs::copy_file(BATON_SOURCE_DIR "/models/demo/model.safetensors", folder / "model.safetensors",
                  fs::copy_options::overwrite_existing);
  };

  SECTION("a truncated checkpoint") {
    fs::resize_file(folder / "model.safetensors", 1000000);
    const std::string message = RefusedStart({folder.string()});
    INFO(message);
    CHECK(message.find("model.safetensors") != std::string::npos);
  }
  SECTION("a checkpoint that lies about its header") {
    std::fstream file(folder / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.write("\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
    file.close();
    const std::string message = RefusedStart({folder.string()});
    INFO(message);
    CHECK(message.find("model.safetensors") != std::string::npos);
  }
  SECTION("an architecture that is not supported") {
    copy_of_weights();
    std::ofstream(folder / "config.json") << R"({"architectures": ["NoSuchForCausalLM"]})";
    const std::string message = RefusedStart({folder.string()});
    INFO(message);
    CHECK(message.find("config.json") != std::string::npos);
    CHECK(message.find("NoSuchForCausalLM") != std::string::npos);
  }
  SECTION("an unknown key in the configuration file") {
    std::ofstream(folder / "baton.yaml") << "decode:\n  max_bach: 8\n";
    const std::string message =
        RefusedStart({"--demo", "--config", (folder / "baton.yaml").string()});
    INFO(message);
    CHECK(message.find("baton.yaml:2") != std::string::npos);
    CHECK(message.find("max_bach") != std::string::npos);
    CHECK(message.find("max_batch") != std::string::npos);
  }
  SECTION("costs of prefill that were measured with another model") {
    std::ofstream(folder / "tuned.yaml")
        << "model: other\nmodel_fingerprint: '7'\nnumerics_id: n\nranks: {}\n"
           "cost: {threads: 1, layers: 4, token: 1e-5, pair: 0, extra_tokens: 0, least_linear: 0, "
           "head: 0, kv_bytes: 512, attention: causal}\n";
    const std::string message =
        RefusedStart({"--demo", "--prefill.cost_file", (folder / "tuned.yaml").string()});
    INFO(message);
    CHECK(message.find("tuned.yaml: its costs are of model other") != std::string::npos);
    CHECK(message.find("prefill.cost_file") != std::string::npos);
  }
  SECTION("a folder that is not there") {
    const std::string message = RefusedStart({"/no/such/model"});
    INFO(message);
    CHECK(message.find("/no/such/model") != std::string::npos);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace baton
