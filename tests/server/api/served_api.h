// The real HTTP front (sockets, connections, API) of the demo model over a fake cluster, and a
// client for it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/http_client.h"
#include "common/log.h"
#include "server/api/api_front.h"
#include "server/api/endpoints/endpoints.h"
#include "tests/server/api/fake_generator.h"
#include "tests/server/http/loop_thread.h"

namespace baton {

// Options of a server that pages of all origins may ask.
inline ApiFrontOptions AnyOrigin() {
  ApiFrontOptions options;
  options.cors_origin = "*";
  return options;
}

struct Served : LoopThread {
  explicit Served(HttpServerOptions http = {}, ApiFrontOptions wanted = {},
                  const std::string& names = "demo", ApiFrontFacts facts = {})
      : options(std::move(wanted)) {
    SetLog(LogLevel::kError, "test");
    facts.version = "test";
    ModelConfig config;
    config.path = BATON_SOURCE_DIR "/models/demo";
    config.name = names;
    model = *ServedModel::Load(config);
    generator = std::make_unique<FakeGenerator>(&loop);
    pool = std::make_unique<TextPool>(
        TextPoolOptions{.max_jobs = 64, .max_bytes = static_cast<size_t>(options.text_queue)});
    front = std::make_unique<ApiFront>(&loop, model.get(), generator.get(), pool.get(), &registry,
                                       RouteTable(), options, facts);
    generator->SetListener(front.get());
    auto started = HttpServer::Start(&loop, http, front.get());
    REQUIRE(started.ok());
    server = *std::move(started);
    front->Attach(server.get());
    port = server->port();
    Start();
  }
  ~Served() {
    if (thread.joinable()) Stop();
    pool.reset();
    server.reset();
  }
  HttpClient Client() const { return HttpClient({"127.0.0.1", port}, absl::Seconds(20)); }
  std::string Metrics() const { return Client().Get("/metrics")->body; }
  // Waits until the page of metrics has `text`; false: not within 20 s.
  bool WaitForMetrics(const std::string& text) const {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (Metrics().find(text) == std::string::npos)
      if (absl::Now() >= end) return false;
    return true;
  }

  const ApiFrontOptions options;
  MetricsRegistry registry;
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<FakeGenerator> generator;
  std::unique_ptr<TextPool> pool;
  std::unique_ptr<ApiFront> front;
  std::unique_ptr<HttpServer> server;
  int port = 0;
};

inline std::string Post(const std::string& path, const std::string& body,
                        const std::string& more = "") {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                      "Content-Length: ", body.size(), "\r\n", more, "\r\n", body);
}
inline std::string Get(const std::string& path, const std::string& more = "") {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n", more, "\r\n");
}
inline const std::string kStream = R"({"prompt":[5],"max_tokens":3,"stream":true})";
inline const std::string kLongStream = R"({"prompt":[5],"max_tokens":4000,"stream":true})";

}  // namespace baton
