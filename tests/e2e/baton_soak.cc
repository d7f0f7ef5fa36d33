// baton_soak: a day's worth of requests in minutes. A real router process with workers whose engine
// hashes (crowd_rig.h) answers short streams of 32 clients over kept connections; one of 64 clients
// goes away in the middle. Prints rate, memory, descriptors and time to first token, and requires
// that all of them stay as they were after the first fifth.
//   baton_soak                  1,000,000 requests
//   baton_soak --requests N     fewer; with less than 200,000 the bounds of memory and time are
//                               wider, because noise is larger
// Exit status 1: a request failed, or a bound is broken.
#include <malloc.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/crowd_rig.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

constexpr int kClients = 32, kPrompts = 256, kDeciles = 10, kGoesAwayOneOf = 64;
constexpr int64_t kLongRun = 200'000;
constexpr double kMaxBytesPerRequest = 1, kMaxSlowdown = 1.05;
// Bounds of a short run: workers still touch their KV pools for the first time.
constexpr double kStallMs = 200;  // of the machine: one hits all clients, more than 1 % of a tenth
constexpr double kShortBytesPerRequest = 400, kShortWorkerBytes = 8192, kShortSlowdown = 3;

// Reservations of a process: bytes of memory, and descriptors.
struct Held {
  double bytes = 0;
  int descriptors = 0;
};
Held HeldBy(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  Held held;
  std::ifstream statm(folder + "/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  held.bytes = resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    static_cast<void>(entry);
    ++held.descriptors;
  }
  return held;
}

// Requests that clients take from one count, and what they saw. Threads: one for each client.
class Soak {
 public:
  Soak(int port, int64_t n_requests) : port_(port), n_requests_(n_requests) {
    for (std::vector<double>& times : first_token_ms_)
      times.reserve(static_cast<size_t>(n_requests / kDeciles));
  }

  void RunClient(int client) {
    std::mt19937_64 random(static_cast<uint64_t>(client));
    std::unique_ptr<RawClient> connection;
    for (int64_t i = 0; (i = n_begun_++) < n_requests_; ++n_done_) {
      if (connection == nullptr) connection = std::make_unique<RawClient>(port_);
      const uint64_t prompt = random() % kPrompts;
      std::string words;
      for (uint64_t word = 0; word < 8 + prompt; ++word)
        absl::StrAppend(&words, " box ", (prompt * 7 + word) % 97);
      const std::string body = StreamBody(words, 2 + static_cast<int>(random() % 8));
      connection->received.clear();
      const absl::Time sent = absl::Now();
      connection->Send(
          absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                       "application/json\r\nContent-Length: ",
                       body.size(), "\r\n\r\n", body));
      const bool began = connection->ReadUntil("data: ");
      const absl::Duration took = absl::Now() - sent;
      if (random() % kGoesAwayOneOf == 0) {
        connection.reset();
        continue;
      }
      if (!began || !connection->ReadUntil("data: [DONE]\n\n") ||
          !connection->received.starts_with("HTTP/1.1 200")) {
        Fail(connection->received);
        connection.reset();
        continue;
      }
      // The last chunk of the body, so that the next answer begins with its status.
      if (connection->received.find("\r\n0\r\n\r\n") == std::string::npos)
        connection->ReadUntil("\r\n0\r\n\r\n");
      std::lock_guard lock(mutex_);
      first_token_ms_[i * kDeciles / n_requests_].push_back(absl::ToDoubleMilliseconds(took));
    }
  }

  int64_t n_done() const { return std::min(n_done_.load(), n_requests_); }
  int64_t n_failed() const { return n_failed_; }
  double P99(int decile) {
    std::vector<double>& times = first_token_ms_[decile];
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  }

 private:
  void Fail(const std::string& answer) {
    if (n_failed_++ == 0) std::printf("failed: %s\n", answer.substr(0, 500).c_str());
  }

  const int port_;
  const int64_t n_requests_;
  std::atomic<int64_t> n_begun_ = 0, n_done_ = 0, n_failed_ = 0;
  std::mutex mutex_;
  std::vector<double> first_token_ms_[kDeciles];  // guarded by mutex_
};

// The slope of the points (x, y) by least squares.
double Slope(const std::vector<std::pair<double, double>>& points) {
  double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / static_cast<double>(points.size());
    mean_y += y / static_cast<double>(points.size());
  }
  for (const auto& [x, y] : points) {
    xy += (x - mean_x) * (y - mean_y);
    xx += (x - mean_x) * (x - mean_x);
  }
  return xx > 0 ? xy / xx : 0;
}

absl::Status Run(int64_t n_requests, bool* is_good) {
  ASSIGN_OR_RETURN(const auto rig, CrowdRig::Start(std::chrono::microseconds(300)));
  const pid_t router = rig->router->pid();
  Soak soak(rig->router->url().port, n_requests);
  std::vector<std::thread> clients;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < kClients; ++i) clients.emplace_back([&soak, i] { soak.RunClient(i); });
  std::vector<std::pair<double, double>> of_router, of_workers;  // requests done, bytes
  int max_descriptors = 0, first_descriptors = 0;
  int64_t printed = 0;
  WaitUntil(absl::InfiniteDuration(), [&] {
    absl::SleepFor(absl::Milliseconds(80));
    const int64_t n = soak.n_done();
    const Held held = HeldBy(router), here = HeldBy(::getpid());
    if (n >= n_requests / 5 && n < n_requests) {
      if (of_router.empty()) first_descriptors = held.descriptors;
      max_descriptors = std::max(max_descriptors, held.descriptors);
      of_router.emplace_back(static_cast<double>(n), held.bytes);
      of_workers.emplace_back(static_cast<double>(n), here.bytes);
    }
    if (n * kDeciles / n_requests > printed || n == n_requests) {
      printed = n * kDeciles / n_requests;
      std::printf(
          "%9lld requests  %7.0f a second  router %.1f MiB, %d descriptors; workers and "
          "clients %.1f MiB\n",
          static_cast<long long>(n),
          static_cast<double>(n) / absl::ToDoubleSeconds(absl::Now() - begin), held.bytes / 1048576,
          held.descriptors, here.bytes / 1048576);
      std::fflush(stdout);
    }
    return n == n_requests;
  });
  for (std::thread& client : clients) client.join();
  const bool is_long = n_requests >= kLongRun;
  const double max_bytes = is_long ? kMaxBytesPerRequest : kShortBytesPerRequest;
  const double max_worker_bytes = is_long ? kMaxBytesPerRequest : kShortWorkerBytes;
  const double max_slowdown = is_long ? kMaxSlowdown : kShortSlowdown;
  // The clients' own record of times grows by 8 bytes a request, which was reserved before.
  const double router_slope = Slope(of_router), worker_slope = Slope(of_workers);
  const double first = soak.P99(kDeciles / 5), last = soak.P99(kDeciles - 1);
  std::printf(
      "memory by request: router %.2f bytes (at most %.0f), workers and clients %.2f (%.0f)\n",
      router_slope, max_bytes, worker_slope, max_worker_bytes);
  std::printf("descriptors of the router: %d, at most %d\n", first_descriptors, max_descriptors);
  std::printf("p99 to the first token: third tenth %.2f ms, last %.2f ms (at most %.2f times)\n",
              first, last, max_slowdown);
  // Each client that has gone leaves a connection that the router closes a moment later.
  *is_good = soak.n_failed() == 0 && router_slope <= max_bytes &&
             worker_slope <= max_worker_bytes && max_descriptors <= first_descriptors + kClients &&
             last <= max_slowdown * first + kStallMs;
  std::printf("%lld requests, %lld failed: %s\n", static_cast<long long>(n_requests),
              static_cast<long long>(soak.n_failed()), *is_good ? "good" : "BAD");
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  CLI::App app{"Many requests to one cluster: nothing grows and nothing becomes slower."};
  int64_t n_requests = 1'000'000;
  app.add_option("--requests", n_requests, "number of requests")->check(CLI::Range(1000, 1 << 30));
  CLI11_PARSE(app, argc, argv);
  bool is_good = false;
  const absl::Status status = baton::Run(n_requests, &is_good);
  if (!status.ok()) std::printf("%s\n", std::string(status.message()).c_str());
  return status.ok() && is_good ? 0 : 1;
}
