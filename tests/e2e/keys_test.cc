// API keys of a real `baton serve`: starts that are refused, keys that change under running
// streams, tenants that share neither KV nor stored answers, and no key where others may read.
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "server/access/key_file.h"
#include "server/api/endpoints/endpoints.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr int kStreams = 64, kTokens = 400;

// The key with this name, and its line in the file.
std::string KeyOf(const std::string& name) { return "bk_e2e-secret-" + name; }
std::string LineOf(const std::string& name, const std::string& tenant, Scope scope,
                   int64_t tokens_per_minute = 0) {
  return KeyLine({.name = name,
                  .digest = KeyDigest::Of(KeyOf(name)),
                  .tenant = tenant,
                  .scopes = SetOf(scope),
                  .tokens_per_minute = tokens_per_minute}) +
         "\n";
}
std::map<std::string, std::string> HeadersOf(const std::string& name) {
  return {{"Authorization", "Bearer " + KeyOf(name)}};
}

class KeyedBaton {
 public:
  explicit KeyedBaton(const std::string& lines) {
    Write(lines);
    auto started = ServedBaton::Start({"--demo", "--prefill", "1", "--api-key-file", path_});
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    served_ = *std::move(started);
  }
  void Write(const std::string& lines, mode_t mode = 0600) const {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << "# keys of the test\n" << lines;
    REQUIRE(::chmod(fresh.c_str(), mode) == 0);
    REQUIRE(::rename(fresh.c_str(), path_.c_str()) == 0);
  }
  ServedBaton& served() const { return *served_; }
  // The answer to a request without a body; empty name: without a key.
  std::string Ask(const std::string& method, const std::string& path,
                  const std::string& name) const {
    RawClient client(served_->url().port);
    REQUIRE(client.Send(absl::StrCat(
        method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
        name.empty() ? "" : absl::StrCat("x-api-key: ", KeyOf(name), "\r\n"), "\r\n")));
    REQUIRE(client.ReadToEnd());
    return client.received;
  }
  int StatusOf(const std::string& path, const std::string& name) const {
    return std::stoi(Ask("GET", path, name).substr(9, 3));
  }
  json::value Post(const std::string& path, const std::string& name,
                   const json::value& body) const {
    const auto response =
        served_->client().Post(path, json::serialize(body), nullptr, HeadersOf(name));
    REQUIRE(response.ok());
    INFO(response->body);
    REQUIRE(response->status == 200);
    return json::parse(response->body);
  }

 private:
  const TempFolder folder_;
  const std::string path_ = folder_.file("keys");
  std::unique_ptr<ServedBaton> served_;
};

std::string StartError(const std::vector<std::string>& args) {
  const auto started = ServedBaton::Start(args);
  REQUIRE_FALSE(started.ok());
  return std::string(started.status().message());
}

TEST_CASE("strangers are not served by accident, and a wrong file of keys ends the start") {
  const std::string open = StartError({"--demo", "--host", "0.0.0.0"});
  CHECK(absl::StrContains(open, "baton ended with status 512"));
  CHECK(absl::StrContains(open, "--api-key-file"));
  CHECK(absl::StrContains(open, "--allow-unauthenticated"));
  const TempFolder folder;
  const std::string path = folder.file("keys");
  const auto with_file = [&](const std::string& text, mode_t mode) {
    std::ofstream(path) << text;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    return StartError({"--demo", "--host", "0.0.0.0", "--api-key-file", path});
  };
  const std::string good = LineOf("a", "t", Scope::kInference);
  CHECK(absl::StrContains(with_file(good, 0644), "chmod 600 " + path));
  CHECK(absl::StrContains(with_file("", 0600), "no key in it"));
  CHECK(
      absl::StrContains(with_file(good + "b x t inference\n", 0600), path + ":2: sha256 must be"));
  CHECK(absl::StrContains(StartError({"--demo", "--api-key-file", path + "x"}), "cannot be read"));
  // A router of its own is no exception.
  const std::string cluster_key = folder.file("cluster");
  std::ofstream(cluster_key) << std::string(64, 'a') << "\n";
  REQUIRE(::chmod(cluster_key.c_str(), 0644) == 0);
  const auto start_router = [&](const char* host) {
    const auto started =
        ServedBaton::StartRouter({"--demo", "--host", host, "--cluster.key_file", cluster_key});
    REQUIRE_FALSE(started.ok());
    return std::string(started.status().message());
  };
  CHECK(absl::StrContains(start_router("127.0.0.1"), "chmod 600 " + cluster_key));
  REQUIRE(::chmod(cluster_key.c_str(), 0600) == 0);
  CHECK(absl::StrContains(start_router("::"), "--allow-unauthenticated"));
}

TEST_CASE("all may be served with keys, or where the operator says so") {
  const TempFolder folder;
  const std::string path = folder.file("keys");
  std::ofstream(path) << LineOf("a", "t", Scope::kInference);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--api-key-file", path},
        std::vector<std::string>{"--allow-unauthenticated"}}) {
    std::vector<std::string> args = {"--demo",    "--host", "0.0.0.0",
                                     "--prefill", "1",      "--server.metrics_port=0"};
    args.insert(args.end(), more.begin(), more.end());
    auto served = ServedBaton::Start(args);
    INFO(served.status().ToString());
    REQUIRE(served.ok());
    RawClient client((*served)->url().port);
    // Another name than on loopback is fine: the key guards.
    REQUIRE(client.Send("GET /v1/models HTTP/1.1\r\nHost: models.example\r\n\r\n"));
    REQUIRE(client.ReadUntil("\r\n\r\n"));
    CHECK(client.received.starts_with(more.size() == 1 ? "HTTP/1.1 200" : "HTTP/1.1 401"));
  }
}

// The status of a request without a body at a port; name: of the key.
int StatusAt(int port, const Route& route, const std::string& name) {
  RawClient client(port);
  REQUIRE(client.Send(absl::StrCat(
      std::string(route.method), " ", absl::StrReplaceAll(std::string(route.path), {{"{id}", "x"}}),
      " HTTP/1.1\r\nHost: models.example\r\nConnection: close\r\n",
      name.empty() ? "" : absl::StrCat("x-api-key: ", KeyOf(name), "\r\n"), "\r\n")));
  REQUIRE(client.ReadToEnd());
  return std::stoi(client.received.substr(9, 3));
}

TEST_CASE(
    "where the API is public, metrics have a port of their own, with probes and nothing else") {
  const TempFolder folder;
  const std::string path = folder.file("keys");
  std::ofstream(path) << LineOf("app", "t", Scope::kInference)
                      << LineOf("prom", "ops", Scope::kMetrics);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  const auto served = ServedBaton::Start({"--demo", "--prefill", "1", "--host", "0.0.0.0",
                                          "--server.metrics_port=0", "--api-key-file", path});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const std::string log = (*served)->log(), mark = "metrics on http://0.0.0.0:";
  REQUIRE(absl::StrContains(log, mark));
  const int metrics = std::atoi(log.c_str() + log.find(mark) + mark.size());
  for (const Route& route : RouteTable()) {
    INFO(route.method << " " << route.path);
    if (route.path == "/livez" || route.path == "/readyz") {
      CHECK(StatusAt(metrics, route, "") == 200);
      continue;
    }
    const bool is_metrics = route.scope == Scope::kMetrics;
    CHECK(StatusAt(metrics, route, "") == 401);
    CHECK(StatusAt(metrics, route, "app") == (is_metrics ? 403 : 404));
    CHECK(StatusAt(metrics, route, "prom") == (is_metrics ? 200 : 404));
    if (is_metrics) {
      CHECK(StatusAt((*served)->url().port, route, "") == 401);
      CHECK(StatusAt((*served)->url().port, route, "prom") == 404);
    }
  }
  // The port has 64 connections, 32 of them for one address: a probe from elsewhere is answered
  // beside a crowd that waits for the rest of its headers.
  std::vector<std::unique_ptr<RawClient>> crowd;
  int n_refused = 0;
  for (int i = 0; i < 65; ++i) {
    crowd.push_back(std::make_unique<RawClient>(metrics, "127.0.0.2"));
    crowd.back()->Send("GET /metrics HTTP/1.1\r\n");
  }
  for (const auto& client : crowd) n_refused += client->ReadUntil("503", absl::Milliseconds(20));
  CHECK(n_refused == 33);
  for (const Route& route : RouteTable())
    if (route.path == "/livez") CHECK(StatusAt(metrics, route, "") == 200);
  crowd.clear();
  for (const Route& route : RouteTable())
    if (route.path == "/metrics")
      CHECK(WaitUntil(absl::Seconds(5), [&] { return StatusAt(metrics, route, "prom") == 200; }));
  // The port of metrics is one of Baton's settings, which an error names.
  const std::string taken = StartError({"--demo", "--host", "0.0.0.0", "--allow-unauthenticated",
                                        absl::StrCat("--server.metrics_port=", metrics)});
  CHECK(absl::StrContains(taken, "server.metrics_port: cannot listen on"));
  REQUIRE((*served)->Terminate().ok());
}

TEST_CASE("clients that take all connections of the API leave the probes of the other port alone") {
  const auto served =
      ServedBaton::Start({"--demo", "--prefill", "1", "--host", "0.0.0.0",
                          "--server.metrics_port=0", "--allow-unauthenticated",
                          "--server.max_connections=2", "--server.max_connections_per_address=2"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const std::string log = (*served)->log(), mark = "metrics on http://0.0.0.0:";
  REQUIRE(absl::StrContains(log, mark));
  const int metrics = std::atoi(log.c_str() + log.find(mark) + mark.size());
  const int api = (*served)->url().port;
  const std::string body =
      R"({"prompt":"Go on.","max_tokens":1500,"ignore_eos":true,"stream":true})";
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int i = 0; i < 2; ++i) {
    auto& client = streams.emplace_back(std::make_unique<RawClient>(api));
    REQUIRE(client->Send(absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: ",
        body.size(), "\r\n\r\n", body)));
    REQUIRE(client->ReadUntil("data: {"));
  }
  const FoundRoute live = FindRoute(RouteTable(), "GET", "/livez");
  const FoundRoute ready = FindRoute(RouteTable(), "GET", "/readyz");
  CHECK(StatusAt(api, *live.route, "") == 503);
  CHECK(StatusAt(metrics, *live.route, "") == 200);
  CHECK(StatusAt(metrics, *ready.route, "") == 200);
}

TEST_CASE("64 streams outlive keys that change, and the key that is gone is refused") {
  const std::string app = LineOf("app", "team", Scope::kInference);
  const std::string prom = LineOf("prom", "ops", Scope::kMetrics);
  KeyedBaton baton(app + prom);
  std::atomic<int> n_begun = 0, n_done = 0;
  std::vector<std::string> problems(kStreams);
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      int n_chunks = 0;
      bool is_done = false;
      const auto response = baton.served().client().Post(
          "/v1/completions", StreamBody(absl::StrCat("Tell me about ", i, " ducks."), kTokens),
          [&](std::string_view data, absl::Time) {
            is_done = data == "[DONE]";
            if (!is_done &&
                absl::StrContains(absl::string_view(data.data(), data.size()), "\"text\"") &&
                ++n_chunks == 3)
              ++n_begun;
            return true;
          },
          HeadersOf("app"));
      if (!response.ok()) {
        problems[i] = response.status().ToString();
      } else if (response->status != 200 || !is_done || n_chunks < kTokens / 2) {
        problems[i] = absl::StrCat("status ", response->status, " chunks ", n_chunks, " done ",
                                   is_done, " ", response->body);
      }
      ++n_done;
    });
  }
  REQUIRE(WaitUntil(absl::Seconds(60), [&] { return n_begun == kStreams; }));
  const int done_before = n_done;
  const std::string fresh = LineOf("fresh", "team", Scope::kInference);
  const size_t log_size = baton.served().log().size();
  baton.Write(fresh + prom);
  ::kill(baton.served().pid(), SIGHUP);
  // New requests at once, while the streams run.
  CHECK(WaitUntil(absl::Seconds(10), [&] { return baton.StatusOf("/v1/models", "app") == 401; }));
  CHECK(baton.StatusOf("/v1/models", "fresh") == 200);
  CHECK(absl::StrContains(baton.served().LogFrom(log_size), "read 2 API keys from"));
  CHECK(done_before < kStreams);
  // A broken file: one line in the log, and the keys stay.
  const size_t before = baton.served().log().size();
  baton.Write("broken\n");
  ::kill(baton.served().pid(), SIGHUP);
  CHECK(baton.served().WaitForLog("the keys stay as they were", absl::Seconds(10)));
  CHECK(baton.StatusOf("/v1/models", "fresh") == 200);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) CHECK(problem == "");
  // Without a signal, too: the file is looked at.
  absl::SleepFor(absl::Seconds(3));
  const std::string later = baton.served().LogFrom(before);
  const std::string said = "the keys stay as they were";
  CHECK(later.find(said) == later.rfind(said));
  baton.Write(app + prom);
  CHECK(WaitUntil(absl::Seconds(20), [&] { return baton.StatusOf("/v1/models", "app") == 200; }));
  CHECK(baton.StatusOf("/v1/models", "fresh") == 401);
  const auto status = baton.served().Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

int64_t CachedTokens(const json::value& answer) {
  return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").to_number<int64_t>();
}

TEST_CASE("tenants share neither cached KV nor stored answers") {
  KeyedBaton baton(LineOf("a1", "a", Scope::kInference) + LineOf("a2", "a", Scope::kInference) +
                   LineOf("b1", "b", Scope::kInference));
  std::string text = "Tell me about";
  for (int i = 0; i < 24; ++i) text += " the duck and the cellar and";
  const auto cached = [&](const char* name) {
    return CachedTokens(baton.Post("/v1/completions", name,
                                   {{"prompt", text}, {"max_tokens", 2}, {"temperature", 0}}));
  };
  CHECK(cached("a1") == 0);
  const int64_t own = cached("a1");
  CHECK(own > 0);
  CHECK(cached("b1") == 0);
  CHECK(cached("b1") == own);
  CHECK(cached("a2") == own);

  const json::value response =
      baton.Post("/v1/responses", "a1", {{"input", "hi"}, {"max_output_tokens", 4}});
  const std::string path = "/v1/responses/" + std::string(response.at("id").as_string());
  CHECK(baton.StatusOf(path, "a2") == 200);
  CHECK(baton.StatusOf(path, "b1") == 404);
  CHECK(baton.Ask("DELETE", path, "b1").starts_with("HTTP/1.1 404"));
  CHECK(baton.StatusOf(path, "a1") == 200);
  REQUIRE(baton.served().Terminate().ok());
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("no key stands in logs, metrics, errors, command lines or environments") {
  KeyedBaton baton(LineOf("app", "team", Scope::kInference, 200) +
                   LineOf("prom", "ops", Scope::kMetrics) + LineOf("boss", "ops", Scope::kAdmin));
  std::string told;
  for (const char* path : {"/v1/models", "/metrics", "/v1/cluster", "/nothing", "/livez"})
    for (const char* name : {"", "app", "prom", "boss", "stranger"})
      told += baton.Ask("GET", path, name);
  for (const char* name : {"app", "stranger", "app", "app"}) {
    const auto response = baton.served().client().Post(
        "/v1/completions", R"({"prompt":[5],"max_tokens":150,"ignore_eos":true})", nullptr,
        HeadersOf(name));
    REQUIRE(response.ok());
    told += response->body;
  }
  CHECK(absl::StrContains(told, "rate_limit_exceeded"));
  const std::string metrics = baton.Ask("GET", "/metrics", "prom");
  CHECK(absl::StrContains(metrics, "reason=\"unknown_key\""));
  CHECK(absl::StrContains(metrics, "key=\"app\""));
  std::vector<pid_t> pids = baton.served().Children();
  REQUIRE(pids.size() >= 3);
  pids.push_back(baton.served().pid());
  for (const pid_t pid : pids) {
    const std::string cmdline = ReadAll(absl::StrCat("/proc/", pid, "/cmdline"));
    CHECK_FALSE(cmdline.empty());
    told += cmdline + ReadAll(absl::StrCat("/proc/", pid, "/environ"));
  }
  const size_t log_size = baton.served().log().size();
  baton.Write(KeyOf("app") + "\n");  // a key where its hash belongs
  ::kill(baton.served().pid(), SIGHUP);
  CHECK(WaitUntil(absl::Seconds(10), [&] {
    return absl::StrContains(baton.served().LogFrom(log_size), "the keys stay as they were");
  }));
  REQUIRE(baton.served().Terminate().ok());
  told += metrics + baton.served().log();
  CHECK_FALSE(absl::StrContains(told, "e2e-secret"));
  CHECK(absl::StrContains(baton.served().log(), "'Authorization: Bearer KEY'"));
}

TEST_CASE("on loopback another name is refused, unless it is listed") {
  auto served =
      ServedBaton::Start({"--demo", "--prefill", "1", "--server.allowed_hosts=mine.test"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const auto status = [&](const std::string& host) {
    RawClient client((*served)->url().port);
    REQUIRE(client.Send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n"));
    REQUIRE(client.ReadUntil("\r\n\r\n"));
    CHECK(client.received.find("Access-Control") == std::string::npos);
    return client.received.substr(9, 3);
  };
  const std::string port = absl::StrCat(":", (*served)->url().port);
  for (const std::string& host : {"localhost" + port, "127.0.0.1" + port, "[::1]" + port,
                                  std::string("localhost"), "mine.test" + port})
    CHECK(status(host) == "200");
  for (const std::string& host : {"evil.example" + port, std::string("evil.example")})
    CHECK(status(host) == "403");
  // Without keys there is nothing to read again.
  ::kill((*served)->pid(), SIGHUP);
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(status("localhost") == "200");
  const auto ended = (*served)->Terminate();
  REQUIRE(ended.ok());
  CHECK(*ended == 0);
}

}  // namespace
}  // namespace baton
