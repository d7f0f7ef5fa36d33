// Connections of an HttpServer under clients that send ahead, stop half-way or go away: the cost of
// each is bounded, and other clients never wait for one.
#include "server/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/server/http/loop_thread.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

// Answers paths that start with /now at once with a large body, and /none after the header; other
// paths only when the test does.
class Answers : public HttpHandler {
 public:
  explicit Answers(EventLoop* loop) : loop_(loop) {}
  std::optional<HttpReply> OnHead(HttpRequest* request) override {
    if (request->path != "/none") return std::nullopt;
    HttpReply reply;
    reply.status = 404;
    return reply;
  }
  void OnRequest(ExchangeId id, HttpRequest request) override {
    ++n_requests;
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

 private:
  EventLoop* loop_;
  bool others_ran_ = false;
};

struct HttpServerFixture : LoopThread {
  explicit HttpServerFixture(const HttpServerOptions& options = {}) : answers(&loop) {
    auto started = HttpServer::Start(&loop, options, &answers);
    REQUIRE(started.ok());
    server = *std::move(started);
    answers.server = server.get();
    port = server->port();
    Start();
  }
  ~HttpServerFixture() { Stop(); }

  Answers answers;
  std::unique_ptr<HttpServer> server;
  int port = 0;
};

std::string Get(const std::string& path) {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n");
}

std::string Times(int n, const std::string& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

size_t Count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST_CASE("requests sent ahead are taken one per turn, and none while answers are not written") {
  HttpServerFixture rig;
  constexpr int kRequests = 2000;  // 80 MB of answers; the kernel holds some 6 MB of them
  RawClient client(rig.port);
  std::thread sender([&] { CHECK(client.Send(Times(kRequests, Get("/now")))); });
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests >= 2; }));
  // Runs until a whole second passes without a new request.
  for (int before = 0; before < rig.answers.n_requests;) {
    before = rig.answers.n_requests;
    absl::SleepFor(absl::Seconds(1));
  }
  CHECK(rig.answers.n_requests < kRequests / 4);
  CHECK(rig.answers.in_turns);
  // Nothing is lost: a client that reads gets every answer.
  const auto wanted = static_cast<std::ptrdiff_t>(kRequests * rig.answers.body_bytes);
  std::ptrdiff_t n_bytes = 0;  // bytes of bodies
  for (const absl::Time end = absl::Now() + absl::Seconds(60);
       n_bytes < wanted && absl::Now() < end; client.received.clear()) {
    client.ReadUntil("x", absl::Seconds(1));
    n_bytes += std::count(client.received.begin(), client.received.end(), 'x');
  }
  sender.join();
  CHECK(n_bytes == wanted);
  CHECK(rig.answers.n_requests == kRequests);
  CHECK(rig.answers.in_turns);
}

TEST_CASE("a client that shuts down its side behind requests sent ahead gets their answers") {
  HttpServerFixture rig;
  RawClient client(rig.port);
  REQUIRE(client.Send(Times(20, Get("/now"))));
  client.HalfClose();
  CHECK(client.ReadToEnd());
  CHECK(Count(client.received, "HTTP/1.1 200 OK") == 20);
}

TEST_CASE("a header has its deadline after an early answer too") {
  HttpServerOptions options;
  options.header_timeout = absl::Milliseconds(150);
  options.idle_timeout = absl::Seconds(30);
  HttpServerFixture rig(options);
  RawClient client(rig.port);
  REQUIRE(client.Send(Get("/none")));
  REQUIRE(client.ReadUntil("HTTP/1.1 404"));
  REQUIRE(client.Send("GET /now HT"));
  CHECK(client.ReadUntil("HTTP/1.1 408", absl::Seconds(5)));
  CHECK(client.ReadToEnd(absl::Seconds(5)));
}

TEST_CASE("much of a body at once buys no time for the rest") {
  HttpServerOptions options;
  options.body_timeout = absl::Milliseconds(400);
  options.slow_body_grace = absl::Milliseconds(100);
  options.limits.max_body = 8 << 20;
  HttpServerFixture rig(options);
  RawClient client(rig.port);
  REQUIRE(client.Send("POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n" +
                      std::string(4 << 20, 'x')));
  bool cut_off = false;
  const absl::Time start = absl::Now();
  while (!cut_off && absl::Now() - start < absl::Seconds(5)) {
    client.Send("x");
    cut_off = client.ReadUntil("HTTP/1.1 408", absl::Milliseconds(100));
  }
  CHECK(cut_off);
}

TEST_CASE("a body that keeps the least rate is read to its end, however it began") {
  HttpServerOptions options;
  options.body_timeout = absl::Milliseconds(400);
  options.slow_body_grace = absl::Milliseconds(300);
  HttpServerFixture rig(options);
  RawClient client(rig.port);
  REQUIRE(client.Send("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n"));
  for (int i = 0; i < 10; ++i) {  // 10 KB/s
    absl::SleepFor(absl::Milliseconds(100));
    client.Send(std::string(1000, 'x'));
  }
  CHECK(client.ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("a client that goes away behind unread bytes is noticed at once") {
  HttpServerFixture rig;
  RawClient client(rig.port);
  REQUIRE(client.Send(Get("/never")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  // More bytes than the connection reads while an answer is due.
  REQUIRE(client.Send(Times(2000, Get("/now"))));
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(rig.answers.n_gone == 0);
  SECTION("closed") { client.Close(); }
  SECTION("half-closed, which means gone by default") { client.HalfClose(); }
  CHECK(rig.WaitFor([&] { return rig.answers.n_gone == 1; }, absl::Seconds(2)));
  CHECK(rig.WaitFor([&] { return rig.server->n_connections() == 0; }));
}

TEST_CASE("half-closed behind unread bytes, all answers come when the operator says so") {
  HttpServerOptions options;
  options.finish_half_closed = true;
  HttpServerFixture rig(options);
  rig.answers.body_bytes = 100;
  RawClient client(rig.port);
  REQUIRE(client.Send(Get("/never")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  constexpr int kAhead = 2000;  // 66 KB
  REQUIRE(client.Send(Times(kAhead, Get("/now"))));
  client.HalfClose();
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(rig.answers.n_gone == 0);
  rig.On([&] {
    rig.server->Reply(rig.answers.last, {});
    return 0;
  });
  CHECK(client.ReadToEnd());
  CHECK(Count(client.received, "HTTP/1.1 200 OK") == kAhead + 1);
}

}  // namespace
}  // namespace baton
