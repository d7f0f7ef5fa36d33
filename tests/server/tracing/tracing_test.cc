// Traces by themselves: which requests are traced, addresses of collectors, and an exporter whose
// collector does not answer. tests/watch/tracing_test.py looks at the spans of a running cluster.
#include "server/tracing/tracer.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/ids.h"

namespace baton {
namespace {

constexpr int64_t kBound = 64 << 10;

// Takes connections and answers nothing.
class SilentServer {
 public:
  SilentServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    REQUIRE(::bind(socket_, address, size) == 0);
    REQUIRE(::listen(socket_, 16) == 0);
    REQUIRE(::getsockname(socket_, address, &size) == 0);
    port = ntohs(at.sin_port);
  }
  ~SilentServer() { ::close(socket_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  int port = 0;

 private:
  const int socket_;
};

}  // namespace

TEST_CASE("the share of trace ids that are sampled is the one asked for, and larger ones hold it") {
  constexpr int kIds = 20000;
  for (const double sample : {0.0, 0.01, 0.3, 1.0}) {
    INFO(sample);
    int n = 0;
    for (int i = 0; i < kIds; ++i) {
      const std::string id = absl::StrFormat("%016x%016x", RandomId(), RandomId());
      const bool is_sampled = IsSampled(id, sample);
      n += is_sampled;
      if (is_sampled) CHECK(IsSampled(id, std::min(1.0, sample + 0.1)));
    }
    CHECK(n == Approx(sample * kIds).margin(6 * std::sqrt(sample * (1 - sample) * kIds)));
  }
}

TEST_CASE("a collector's address has a host, and OTLP's port and path unless others are told") {
  const auto told = [](const std::string& endpoint) -> std::string {
    const auto address = ReadCollectorAddress(endpoint);
    if (!address.ok()) return std::string(address.status().message());
    return absl::StrCat(address->host, " ", address->port, " ", address->path);
  };
  CHECK(told("http://collector") == "collector 4318 /v1/traces");
  CHECK(told("http://collector/") == "collector 4318 /v1/traces");
  CHECK(told("http://collector.a:80") == "collector.a 80 /v1/traces");
  CHECK(told("http://10.0.0.1:4318/otlp/v1/traces") == "10.0.0.1 4318 /otlp/v1/traces");
  CHECK(told("http://[::1]:9") == "::1 9 /v1/traces");
  CHECK(told("http://[fe80::1]") == "fe80::1 4318 /v1/traces");
  for (const char* bad :
       {"", "collector", "https://collector", "http://", "http://:1", "http://a:0",
        "http://a:65536", "http://a:x", "http://a b", "http://u@a", "http://::1", "http://[::1",
        "http://::1]:2", "http://a/x y", "http://a/x?y", "http://a\r\nX: y"}) {
    INFO(bad);
    CHECK(told(bad).starts_with("tracing.endpoint is "));
  }
}

TEST_CASE("spans wait within their bound, others are dropped and counted, and the end is soon") {
  SilentServer collector;
  TracingOptions options;
  options.max_waiting = kBound;
  options.pause = absl::Milliseconds(1);
  options.timeout = absl::Milliseconds(200);
  std::atomic<int64_t> sent = 0, dropped = 0;
  constexpr int kRequests = 1000;
  const std::string json = "\"" + std::string(1000, 'x') + "\"";
  {
    SpanExporter exporter(
        options, {.host = "127.0.0.1", .port = absl::StrCat(collector.port)}, "[",
        {.sent = [&](int64_t n) { sent += n; }, .dropped = [&](int64_t n) { dropped += n; }});
    const absl::Time begin = MonotonicNow();
    for (int i = 0; i < kRequests; ++i) exporter.Add({.json = json, .n = 2});
    CHECK(MonotonicNow() - begin < absl::Seconds(1));  // nobody waits for the collector
    // Room is for spans that wait and for a batch under way.
    const int64_t room = 2 * 2 * kBound / static_cast<int64_t>(json.size());
    CHECK(dropped >= 2 * kRequests - room);
    CHECK(dropped < 2 * kRequests);
  }
  CHECK(sent == 0);
  CHECK(dropped == 2 * kRequests);  // those that waited for a collector that did not take them
}

}  // namespace baton
