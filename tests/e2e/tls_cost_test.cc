// Measures what TLS costs a router per streamed token, beside plain connections: two routers
// (crowd_rig.h), in turns. A small crowd runs in CI, for what works; "[.][cost]" is the command of
// docs/SECURITY.md that measures: 256 connections, at most 1.3 times the processor time of plain
// ones.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/crowd_rig.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"
#include "tests/support/tls_client.h"

namespace baton {
namespace {

constexpr double kMaxRatio = 1.3;
constexpr std::chrono::microseconds kStep(25000);

class Crowd {
 public:
  explicit Crowd(bool is_secured) {
    ::signal(SIGPIPE, SIG_IGN);
    std::vector<std::string> args;
    if (is_secured) {
      authority_.Issue("served").WriteTo(folder_, "served");
      args = {"--tls-cert", folder_.file("served.pem"), "--tls-key", folder_.file("served.key")};
    }
    secured_ = is_secured;
    auto rig = CrowdRig::Start(kStep, args, [this](const ServedBaton& router) {
      const auto client = Connect(router);
      return client->Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") &&
             client->ReadUntil("\r\n\r\n") && client->received.starts_with("HTTP/1.1 200");
    });
    INFO(rig.status().ToString());
    REQUIRE(rig.ok());
    rig_ = *std::move(rig);
  }

  // Streams over n connections, on each one after another. Adds what they took to the sums.
  void Stream(int n, absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < n; ++i) clients.push_back(Connect(*rig_->router));
    const double before = CpuSeconds(rig_->router->pid());
    std::atomic<int64_t> n_tokens = 0;
    std::atomic<int> n_broken = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i)
      threads.emplace_back([&, i] {
        RawClient& client = *clients[static_cast<size_t>(i)];
        while (absl::Now() < end) {
          const std::string body =
              StreamBody(absl::StrCat("Tell me about ", i, " ducks."), 100 + i);
          client.Send(
              absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                           "application/json\r\n",
                           "Content-Length: ", body.size(), "\r\n\r\n", body));
          int n_events = 0;
          while (client.received.find("data: [DONE]") == std::string::npos) {
            // Counted events go; one that is not whole stays.
            const size_t cut = client.received.rfind("\n\n");
            for (size_t at = 0;
                 cut != std::string::npos && (at = client.received.find("data: ", at)) < cut; ++at)
              ++n_events;
            if (cut != std::string::npos) client.received.erase(0, cut);
            if (!client.ReadUntil("data: ", absl::Seconds(30))) {
              ++n_broken;
              return;
            }
          }
          client.received.clear();
          n_tokens += n_events;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(n_broken == 0);
    n_tokens_ += n_tokens;
    seconds_ += CpuSeconds(rig_->router->pid()) - before;
  }
  void Forget() { n_tokens_ = 0, seconds_ = 0; }
  int64_t n_tokens() const { return n_tokens_; }
  double microseconds() const {  // of the router, a token
    return 1e6 * seconds_ / static_cast<double>(std::max<int64_t>(1, n_tokens_));
  }

 private:
  std::unique_ptr<RawClient> Connect(const ServedBaton& router) const {
    if (secured_)
      return std::make_unique<TlsClient>(router.url().port, TlsWishes{.trusted = &authority_});
    return std::make_unique<RawClient>(router.url().port);
  }

  const TempFolder folder_;
  TestAuthority authority_{"authority"};
  bool secured_ = false;
  std::unique_ptr<CrowdRig> rig_;
  int64_t n_tokens_ = 0;
  double seconds_ = 0;
};

TEST_CASE("streams of a small crowd run over TLS and without") {
  for (const bool is_secured : {false, true}) {
    Crowd crowd(is_secured);
    crowd.Stream(8, absl::Seconds(1));
    CHECK(crowd.n_tokens() > 100);
  }
}

TEST_CASE("TLS takes at most 1.3 times a router's time per token", "[.][cost]") {
  Crowd plain(false), secured(true);
  for (Crowd* crowd : {&plain, &secured}) {
    crowd->Stream(kCrowdStreams, absl::Seconds(3));
    crowd->Forget();
  }
  for (int turn = 0; turn < 3; ++turn)
    for (Crowd* crowd : {&plain, &secured}) crowd->Stream(kCrowdStreams, absl::Seconds(10));
  WARN(plain.n_tokens() << " tokens plain, " << plain.microseconds() << " us each; "
                        << secured.n_tokens() << " over TLS, " << secured.microseconds()
                        << " us each: " << secured.microseconds() / plain.microseconds()
                        << " times");
  CHECK(secured.microseconds() <= kMaxRatio * plain.microseconds());
}

}  // namespace
}  // namespace baton
