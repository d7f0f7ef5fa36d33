// An HttpServer on a loop of its own, over TCP, TLS or a Unix socket, and clients for it.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/http/http_server.h"
#include "tests/server/http/loop_thread.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tls_client.h"

namespace baton {

// Answers paths that start with /now at once with a large body, and /none after the header; other
// paths only when the test does. An API key is the owner of the connection.
class Answers : public HttpHandler {
 public:
  explicit Answers(EventLoop* loop) : loop_(loop) {}
  std::optional<HttpReply> OnHead(HttpRequest* request) override {
    if (!request->api_key.empty()) request->owner = std::hash<std::string>()(request->api_key);
    if (request->path != "/none") return std::nullopt;
    HttpReply reply;
    reply.status = 404;
    return reply;
  }
  void OnRequest(ExchangeId id, HttpRequest request) override {
    ++n_requests;
    incoming_then = server->stats().incoming;
    if (request.path != "/now") {
      last = id;
      return;
    }
    // Other connections had their turn since the last request, because the posted function has run.
    if (n_requests > 1 && !others_ran_) in_turns = false;
    others_ran_ = false;
    loop_->Post([this] { others_ran_ = true; });
    HttpReply reply;
    reply.body = std::string(body_bytes, 'x');
    server->Reply(id, reply);
  }
  void OnGone(ExchangeId) override { ++n_gone; }
  HttpReply OnBadRequest(const HttpRequest&, int status, const std::string& message) override {
    HttpReply reply;
    reply.status = status;
    reply.body = message;
    return reply;
  }

  HttpServer* server = nullptr;
  size_t body_bytes = 40 << 10;
  std::atomic<int> n_requests = 0, n_gone = 0;
  std::atomic<bool> in_turns = true;
  std::atomic<ExchangeId> last = 0;
  std::atomic<int64_t> incoming_then = 0;  // bytes of requests on their way, at the last request

 private:
  EventLoop* loop_;
  bool others_ran_ = false;
};

enum class Over { kTcp, kTls, kUnix };

struct HttpRig : LoopThread {
  explicit HttpRig(HttpServerOptions options = {}, Over carrier = Over::kTcp)
      : over(carrier), answers(&loop) {
    std::signal(SIGPIPE, SIG_IGN);  // as main() does
    if (over == Over::kTls) {
      authority.Issue("served").WriteTo(folder, "served");
      options.tls.cert = folder.file("served.pem");
      options.tls.key = folder.file("served.key");
    } else if (over == Over::kUnix) {
      options.port = -1;
      options.uds = folder.file("http.sock");
    }
    auto started = HttpServer::Start(&loop, options, &answers);
    INFO((started.ok() ? "" : std::string(started.status().message())));
    REQUIRE(started.ok());
    server = *std::move(started);
    answers.server = server.get();
    port = server->port();
    Start();
  }
  ~HttpRig() { Stop(); }

  std::unique_ptr<RawClient> Connect() const {
    if (over == Over::kTls)
      return std::make_unique<TlsClient>(port, TlsWishes{.trusted = &authority});
    if (over == Over::kUnix) return std::make_unique<RawClient>(folder.file("http.sock"));
    return std::make_unique<RawClient>(port);
  }
  HttpStats Stats() {
    return On([this] { return server->stats(); });
  }
  int64_t Handshakes(TlsResult result) { return Stats().handshakes[static_cast<size_t>(result)]; }
  // Begins to stream the answer to the last request, and goes on with it.
  void StartStream() {
    On([this] {
      server->StartStream(answers.last, {});
      return 0;
    });
  }
  void Stream(const std::string& text) {
    On([&] {
      server->Write(answers.last, text);
      return 0;
    });
  }

  const Over over;
  TempFolder folder;
  TestAuthority authority{"the test's authority"};
  Answers answers;
  std::unique_ptr<HttpServer> server;
  int port = 0;
};

inline std::string Get(const std::string& path, const std::string& lines = "") {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n", lines, "\r\n");
}

}  // namespace baton
