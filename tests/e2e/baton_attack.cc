// baton_attack: measures the effect of misbehaving clients on others, with real processes: eight
// streams alone, then together with clients that send requests ahead and read no answers (at the
// router and at its workers), send half a header and stop, or send 4 MiB of a body and then a byte
// every five seconds; in turns, in one run. Prints the router's memory and the gaps between tokens.
// Exit status 1: the memory grew by more than 64 MiB above idle, or the p99 gap is more than 1.2
// times the gap without misbehaving clients.
//   baton_attack [SECONDS of each of four turns]
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"

namespace baton {
namespace {

constexpr int kStreams = 8, kStreamTokens = 3000;
constexpr double kMaxMemory = 64, kMaxGapRatio = 1.2;  // MiB; ratio of p99

// Sends bytes to a server without waiting for it to read them, and reads nothing.
class Attacker {
 public:
  explicit Attacker(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int small = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Attacker() { ::close(socket_); }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  // Sends all bytes unless `over` becomes true or the server closes. True: the server has not
  // closed.
  bool Send(std::string_view bytes, const std::atomic<bool>& over) {
    while (is_open_ && !bytes.empty() && !over) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        absl::SleepFor(absl::Milliseconds(20));
      } else {
        is_open_ = false;
      }
    }
    return is_open_;
  }

 private:
  int socket_;
  bool is_open_;
};

void Pause(absl::Duration pause, const std::atomic<bool>& over) {
  for (const absl::Time end = absl::Now() + pause; !over && absl::Now() < end;)
    absl::SleepFor(absl::Milliseconds(50));
}

// Sends one request after another and never reads an answer.
void SendAhead(int port, const std::atomic<bool>& over) {
  std::string requests;
  while (requests.size() < 73'000) requests += "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  while (!over) {
    Attacker attacker(port);
    while (!over && attacker.Send(requests, over)) {
    }
    Pause(absl::Seconds(1), over);
  }
}

void SendHalfHeaders(int port, const std::atomic<bool>& over) {
  while (!over) {
    Attacker attacker(port);
    attacker.Send("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HT", over);
    Pause(absl::Seconds(15), over);
  }
}

void DripBody(int port, const std::atomic<bool>& over) {
  while (!over) {
    Attacker attacker(port);
    attacker.Send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 5000000\r\n\r\n" +
            std::string(4 << 20, ' '),
        over);
    while (!over && attacker.Send(" ", over)) Pause(absl::Seconds(5), over);
  }
}

// Returns the ports of the workers' own pages from the processes' logs.
std::vector<int> WorkerPorts(const std::string& log) {
  const std::string mark = "metrics on http://127.0.0.1:";
  std::vector<int> ports;
  for (size_t at = 0; (at = log.find(mark, at)) != std::string::npos; at += mark.size())
    ports.push_back(std::atoi(log.c_str() + at + mark.size()));
  return ports;
}

double MemoryMiB(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

// Returns the milliseconds between tokens of streams that are requested again and again.
std::vector<double> Gaps(const HttpClient& client, absl::Duration duration) {
  std::mutex mutex;
  std::vector<double> all;
  std::vector<std::thread> threads;
  const absl::Time end = absl::Now() + duration;
  for (int i = 0; i < kStreams; ++i)
    threads.emplace_back([&, i] {
      std::vector<double> gaps;
      while (absl::Now() < end) {
        absl::Time last = absl::InfiniteFuture();
        const std::string body =
            StreamBody(absl::StrCat("Tell me about ", i, " ducks."), kStreamTokens);
        const auto response =
            client.Post("/v1/completions", body, [&](std::string_view data, absl::Time now) {
              if (last < now) gaps.push_back(absl::ToDoubleMilliseconds(now - last));
              last = now;
              return data != "[DONE]" && now < end;
            });
        if (!response.ok() && absl::Now() < end)
          std::printf("a stream failed: %s\n", std::string(response.status().message()).c_str());
      }
      std::lock_guard lock(mutex);
      all.insert(all.end(), gaps.begin(), gaps.end());
    });
  for (std::thread& thread : threads) thread.join();
  std::sort(all.begin(), all.end());
  return all;
}

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * double(sorted.size())))];
}

void Add(std::vector<double>* to, const std::vector<double>& more) {
  to->insert(to->end(), more.begin(), more.end());
  std::sort(to->begin(), to->end());
}

int Run(absl::Duration turn) {
  const auto served = ServedBaton::Start({"--demo", "--server.max_body", "8388608"});
  if (!served.ok()) {
    std::printf("%s\n", std::string(served.status().message()).c_str());
    return 2;
  }
  const HttpClient client = (*served)->client();
  const int port = (*served)->url().port;
  const std::vector<int> workers = WorkerPorts((*served)->log());
  const pid_t router = (*served)->Child("router");
  Gaps(client, absl::Seconds(3));  // warm-up
  absl::SleepFor(absl::Seconds(1));
  const double idle = MemoryMiB(router);
  std::printf("router, idle: %.1f MiB; workers' pages: %zu\n", idle, workers.size());

  std::vector<double> alone, beside;
  double max = idle;
  for (int round = 0; round < 2; ++round) {
    Add(&alone, Gaps(client, turn));
    std::atomic<bool> over = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(SendAhead, port, std::ref(over));
    for (const int worker : workers)
      for (int i = 0; i < 2; ++i) threads.emplace_back(SendAhead, worker, std::ref(over));
    for (int i = 0; i < 16; ++i) threads.emplace_back(SendHalfHeaders, port, std::ref(over));
    for (int i = 0; i < 8; ++i) threads.emplace_back(DripBody, port, std::ref(over));
    threads.emplace_back([&] {
      while (!over) {
        max = std::max(max, MemoryMiB(router));
        absl::SleepFor(absl::Milliseconds(50));
      }
    });
    Add(&beside, Gaps(client, turn));
    over = true;
    for (std::thread& thread : threads) thread.join();
  }
  const double ratio = Quantile(beside, 0.99) / std::max(1e-9, Quantile(alone, 0.99));
  for (const auto& [name, gaps] : {std::pair("alone", &alone), std::pair("attacked", &beside)})
    std::printf("%-9s %8zu gaps  p50 %7.2f ms  p99 %7.2f ms  max %7.2f ms\n", name, gaps->size(),
                Quantile(*gaps, 0.5), Quantile(*gaps, 0.99), Quantile(*gaps, 1));
  const bool good = max - idle <= kMaxMemory && ratio <= kMaxGapRatio;
  std::printf(
      "router, attacked: %.1f MiB above idle (at most %.0f), p99 gap %.2f times (at most %.1f): "
      "%s\n",
      max - idle, kMaxMemory, ratio, kMaxGapRatio, good ? "good" : "BAD");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 20;
  return baton::Run(absl::Seconds(seconds));
}
