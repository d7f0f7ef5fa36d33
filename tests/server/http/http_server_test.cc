// Connections of an HttpServer under clients that send ahead, stop half-way or go away: the cost of
// each is bounded, and other clients never wait for one. Over TCP, TLS and a Unix socket alike.
#include "server/http/http_server.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/server/http/http_rig.h"

namespace baton {
namespace {

Over AnyCarrier() { return GENERATE(Over::kTcp, Over::kTls, Over::kUnix); }

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
  HttpRig rig({}, AnyCarrier());
  constexpr int kRequests = 2000;  // 80 MB of answers; the kernel holds some 6 MB of them
  const auto connected = rig.Connect();
  RawClient& client = *connected;
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
  HttpRig rig({}, AnyCarrier());
  const auto connected = rig.Connect();
  RawClient& client = *connected;
  REQUIRE(client.Send(Times(20, Get("/now"))));
  client.HalfClose();
  CHECK(client.ReadToEnd());
  CHECK(Count(client.received, "HTTP/1.1 200 OK") == 20);
}

TEST_CASE("a stream in answer to HEAD has a head alone, behind which the next answer is read") {
  HttpRig rig;
  RawClient client(rig.port);
  REQUIRE(client.Send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n"));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  rig.Stream("not for HEAD");
  rig.On([&] {
    rig.server->EndStream(rig.answers.last);
    return 0;
  });
  REQUIRE(client.Send(Get("/none")));
  REQUIRE(client.ReadUntil("404 Not Found"));
  CHECK(Count(client.received, "HTTP/1.1 ") == 2);
  CHECK(client.received.find("\r\n\r\nHTTP/1.1 404") != std::string::npos);
}

TEST_CASE("a header has its deadline after an early answer too") {
  HttpServerOptions options;
  options.header_timeout = absl::Milliseconds(150);
  options.idle_timeout = absl::Seconds(30);
  HttpRig rig(options, AnyCarrier());
  const auto connected = rig.Connect();
  RawClient& client = *connected;
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
  HttpRig rig(options, AnyCarrier());
  const auto connected = rig.Connect();
  RawClient& client = *connected;
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
  HttpRig rig(options, AnyCarrier());
  const auto connected = rig.Connect();
  RawClient& client = *connected;
  REQUIRE(client.Send("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n"));
  for (int i = 0; i < 10; ++i) {  // 10 KB/s
    absl::SleepFor(absl::Milliseconds(100));
    client.Send(std::string(1000, 'x'));
  }
  CHECK(client.ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("a client that goes away behind unread bytes is noticed at once") {
  HttpRig rig({}, AnyCarrier());
  const auto connected = rig.Connect();
  RawClient& client = *connected;
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
  HttpRig rig(options, AnyCarrier());
  rig.answers.body_bytes = 100;
  const auto connected = rig.Connect();
  RawClient& client = *connected;
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
