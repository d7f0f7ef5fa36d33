// A served cluster whose machine runs out: its log cannot be written because the disk is full, and
// there are hardly more descriptors than it needs. No request fails, and no process ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/http_client.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/free_port.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

constexpr int kDescriptors = 900;  // hard limit of each process; 512 are kept back (SECURITY.md)

// `baton serve --demo` with few descriptors, whose output goes to /dev/full, where each write fails
// with ENOSPC.
class ExhaustedBaton {
 public:
  ExhaustedBaton() : port_(FreePort()), pid_(::fork()) {
    if (pid_ == 0) {
      ::setpgid(0, 0);
      const int full = ::open("/dev/full", O_WRONLY);
      ::dup2(full, STDOUT_FILENO);
      ::dup2(full, STDERR_FILENO);
      const rlimit few{kDescriptors, kDescriptors};
      ::setrlimit(RLIMIT_NOFILE, &few);
      const std::string port = std::to_string(port_);
      ::execl(BATON_BINARY, BATON_BINARY, "serve", "--demo", "--prefill", "1", "--log.level=debug",
              "--port", port.c_str(), nullptr);
      ::_exit(127);
    }
    REQUIRE(WaitUntil(absl::Seconds(60), [&] {
      const auto health = client().Get("/readyz");
      return health.ok() && health->status == 200;
    }));
  }
  ~ExhaustedBaton() {
    ::kill(-pid_, SIGKILL);
    if (!is_reaped_) ::waitpid(pid_, nullptr, 0);
  }

  int port() const { return port_; }
  HttpClient client() const {
    return HttpClient({.host = "127.0.0.1", .port = port_}, absl::Seconds(60));
  }
  std::vector<pid_t> Children() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children"));
    std::vector<pid_t> children;
    for (pid_t child = 0; file >> child;) children.push_back(child);
    return children;
  }
  // The exit status after SIGTERM.
  int Terminate() {
    ::kill(pid_, SIGTERM);
    int status = -1;
    is_reaped_ =
        WaitUntil(absl::Seconds(30), [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
    return status;
  }

 private:
  const int port_;
  const pid_t pid_;
  bool is_reaped_ = false;
};

TEST_CASE("a full disk behind the log and an end of descriptors fail no request") {
  ExhaustedBaton baton;
  const std::vector<pid_t> children = baton.Children();
  REQUIRE(children.size() >= 3);
  std::vector<std::unique_ptr<RawClient>> crowd;
  int n_refused = 0;
  const auto streams = RunCrowd(baton.client(), [&] {
    // More connections than there are descriptors, while all streams run.
    for (int i = 0; i < kDescriptors + 100; ++i) {
      crowd.push_back(
          std::make_unique<RawClient>(baton.port(), i % 2 == 0 ? "127.0.0.2" : "127.0.0.3"));
      crowd.back()->Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (const auto& client : crowd) {
      const bool is_answered = client->ReadUntil("HTTP/1.1 ", absl::Milliseconds(200));
      n_refused += !is_answered || client->received.find("HTTP/1.1 200") == std::string::npos;
    }
  });
  WARN(n_refused << " of " << crowd.size() << " connections had no place");
  CHECK(n_refused > 0);
  // Each text came to its end, and a quiet server says the same ones.
  crowd.clear();
  const auto later = RunCrowd(baton.client(), [] {});
  REQUIRE(later.size() == streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    CHECK(streams[i].text == later[i].text);
    CHECK(streams[i].text.find("\"finish_reason\":\"length\"") != std::string::npos);
  }
  CHECK(baton.Children() == children);
  CHECK(baton.Terminate() == 0);
}

}  // namespace
}  // namespace baton
