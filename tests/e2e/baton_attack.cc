// baton_attack: measures the effect of misbehaving clients on others, with real processes. Before
// and during each attack (attacks.h) eight streams run, and another client asks for the list of
// models again and again. Prints the router's memory, the gaps between tokens, and the latency.
// The attacker stands for another host, so it has what time these cores have left (SCHED_IDLE); yet
// its sockets are here, so there is a control: the same streams and client on Baton, while the
// attack goes to another server (bare_server.h). It decides nothing.
//   baton_attack [--rounds R] [--seconds S] [--attack NAME]   R times in turns: S seconds alone, S
//                                                             control, S attacked
//   baton_attack --short                         sizes and times of CI; memory and answers alone
//   baton_attack --bare-server BYTES            is that other server; pages of so many bytes
// Exit status 1: a stream or a request failed; the memory grew by more than 64 MiB above idle; or,
// not with --short, the p99 gap is more than 1.2 times that of the turns alone, or the p99 latency
// of others is more than 5 ms longer.
#include <sched.h>
#include <sys/resource.h>

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
#include "tests/e2e/attacks.h"
#include "tests/e2e/bare_server.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/child_process.h"

namespace baton {
namespace {

constexpr int kStreams = 8, kStreamTokens = 3000;
constexpr char kConnections[] = "baton_http_connections_total";
constexpr double kMaxMemory = 64, kMaxGapRatio = 1.2, kMaxAdded = 5;  // MiB; ratio of p99; ms

struct Wishes {
  absl::Duration turn = absl::Seconds(4);
  int rounds = 5;  // p99 of a turn differs by a fifth from the next one's
  int scale = 1;
  bool is_short = false;
  std::string only{};  // name of an attack; empty: all
};

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

struct Turn {
  std::vector<double> gaps, latencies;  // ms, ascending
  double memory = 0;                    // MiB, the most
  int n_failed = 0;

  void Add(const Turn& turn) {
    AddSorted(turn.gaps, &gaps);
    AddSorted(turn.latencies, &latencies);
    memory = std::max(memory, turn.memory);
    n_failed += turn.n_failed;
  }

 private:
  static void AddSorted(const std::vector<double>& some, std::vector<double>* all) {
    const auto middle = static_cast<ptrdiff_t>(all->size());
    all->insert(all->end(), some.begin(), some.end());
    std::inplace_merge(all->begin(), all->begin() + middle, all->end());
  }
};

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * double(sorted.size())))];
}

// One stream after another; their gaps.
void Stream(const HttpClient& client, int i, absl::Time end, std::mutex* mutex, Turn* turn) {
  std::vector<double> gaps;
  int n_failed = 0;
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
    if ((!response.ok() || response->status != 200) && absl::Now() < end && n_failed++ == 0)
      std::printf("a stream failed: %s\n",
                  response.ok() ? response->body.c_str() : response.status().ToString().c_str());
  }
  const std::lock_guard lock(*mutex);
  turn->gaps.insert(turn->gaps.end(), gaps.begin(), gaps.end());
  turn->n_failed += n_failed;
}

// Small requests, each on a connection of its own, and meanwhile the router's memory.
void Probe(const HttpClient& client, pid_t router, absl::Time end, Turn* turn) {
  int n_failed = 0;
  while (absl::Now() < end) {
    turn->memory = std::max(turn->memory, MemoryMiB(router));
    const absl::Time begin = absl::Now();
    const auto response = client.Get("/v1/models");
    turn->latencies.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
    n_failed += !response.ok() || response->status != 200;
    absl::SleepFor(absl::Milliseconds(20));
  }
  if (n_failed > 0) std::printf("%d requests of another client failed\n", n_failed);
  turn->n_failed += n_failed;
}

Turn Run(const HttpClient& client, pid_t router, absl::Duration duration) {
  std::mutex mutex;
  Turn turn, probed;
  std::vector<std::thread> threads;
  const absl::Time end = absl::Now() + duration;
  for (int i = 0; i < kStreams; ++i)
    threads.emplace_back([&, i] { Stream(client, i, end, &mutex, &turn); });
  Probe(client, router, end, &probed);
  for (std::thread& thread : threads) thread.join();
  turn.latencies = std::move(probed.latencies);
  turn.memory = probed.memory;
  turn.n_failed += probed.n_failed;
  std::sort(turn.gaps.begin(), turn.gaps.end());
  std::sort(turn.latencies.begin(), turn.latencies.end());
  return turn;
}

Turn RunBeside(const Attack& attack, const AttackTarget& target, const HttpClient& client,
               pid_t router, absl::Duration duration) {
  std::atomic<bool> over = false;
  std::thread attacker([&] {
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_IDLE, &none);
    attack.run(target, over);
  });
  Turn turn = Run(client, router, duration);
  over = true;
  attacker.join();
  return turn;
}

double GapRatio(const Turn& turn, const Turn& alone) {
  return Quantile(turn.gaps, 0.99) / std::max(1e-9, Quantile(alone.gaps, 0.99));
}
double AddedLatency(const Turn& turn, const Turn& alone) {
  return Quantile(turn.latencies, 0.99) - Quantile(alone.latencies, 0.99);
}

// The attack on another server, on the same cores.
Turn RunControl(const Attack& attack, AttackTarget target, const HttpClient& client, pid_t router,
                absl::Duration duration) {
  const auto page = client.Get("/openapi.json");
  ChildProcess bare(
      {"/proc/self/exe", "--bare-server", absl::StrCat(page.ok() ? page->body.size() : size_t{1})});
  target.port = std::atoi(bare.ReadLine().c_str());
  target.worker_ports.assign(target.worker_ports.size(), target.port);
  return RunBeside(attack, target, client, router, duration);
}

bool Try(const Attack& attack, const Wishes& wishes, const ServedBaton& served, double idle) {
  const HttpClient client = served.client();
  const pid_t router = served.Child("router");
  AttackTarget target{.port = served.url().port, .scale = wishes.scale};
  target.worker_ports = WorkerPorts(served.log());
  Turn alone, control, beside;
  double n_taken = 0;  // connections during the attack
  for (int i = 0; i < wishes.rounds; ++i) {
    alone.Add(Run(client, router, wishes.turn));
    if (!wishes.is_short) control.Add(RunControl(attack, target, client, router, wishes.turn));
    const double before = MetricSum(client, kConnections);
    beside.Add(RunBeside(attack, target, client, router, wishes.turn));
    n_taken += MetricSum(client, kConnections) - before;
  }
  const double ratio = GapRatio(beside, alone), added = AddedLatency(beside, alone);
  const double memory = beside.memory - idle;
  bool is_good = memory <= kMaxMemory && alone.n_failed + beside.n_failed == 0;
  if (!wishes.is_short) is_good = is_good && ratio <= kMaxGapRatio && added <= kMaxAdded;
  const auto health = client.Get("/health");
  is_good = is_good && health.ok() && health->status == 200;
  std::printf(
      "%-8s %5.1f MiB above idle; gaps p50 %5.2f -> %5.2f ms, p99 %6.2f -> %6.2f ms (%.2f times); "
      "others p50 %5.2f -> %5.2f ms, p99 %6.2f -> %6.2f ms; %.0f connections: %s\n",
      std::string(attack.name).c_str(), memory, Quantile(alone.gaps, 0.5),
      Quantile(beside.gaps, 0.5), Quantile(alone.gaps, 0.99), Quantile(beside.gaps, 0.99), ratio,
      Quantile(alone.latencies, 0.5), Quantile(beside.latencies, 0.5),
      Quantile(alone.latencies, 0.99), Quantile(beside.latencies, 0.99), n_taken,
      is_good ? "good" : "BAD");
  if (!wishes.is_short)
    std::printf(
        "%-8s control, on another server: gaps p99 %.2f ms (%.2f times); others p99 %.2f ms\n", "",
        Quantile(control.gaps, 0.99), GapRatio(control, alone), Quantile(control.latencies, 0.99));
  std::fflush(stdout);
  return is_good;
}

int RunAll(const Wishes& wishes) {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  const auto served = ServedBaton::Start({"--demo", "--server.max_body=8388608"});
  if (!served.ok()) {
    std::printf("%s\n", std::string(served.status().message()).c_str());
    return 2;
  }
  const pid_t router = (*served)->Child("router");
  Run((*served)->client(), router, wishes.is_short ? absl::Seconds(1) : absl::Seconds(3));
  absl::SleepFor(absl::Seconds(1));
  const double idle = MemoryMiB(router);
  std::printf("router, idle: %.1f MiB; %d streams beside each attack\n", idle, kStreams);
  bool is_good = true;
  for (const Attack& attack : AllAttacks()) {
    if (!wishes.only.empty() && wishes.only != attack.name) continue;
    std::printf("-- %s\n", std::string(attack.what).c_str());
    is_good = Try(attack, wishes, **served, idle) && is_good;
  }
  std::printf("router, at the end: %.1f MiB above idle\n", MemoryMiB(router) - idle);
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Wishes wishes;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--short") {
      wishes.is_short = true;
      wishes.scale = 8;
      wishes.turn = absl::Milliseconds(1200);
      wishes.rounds = 1;
    } else if (i + 1 < argc && flag == "--seconds") {
      wishes.turn = absl::Seconds(std::atof(argv[++i]));
    } else if (i + 1 < argc && flag == "--rounds") {
      wishes.rounds = std::atoi(argv[++i]);
    } else if (i + 1 < argc && flag == "--attack") {
      wishes.only = argv[++i];
    } else if (i + 1 < argc && flag == "--bare-server") {
      return baton::ServeBare(static_cast<size_t>(std::atoll(argv[++i])));
    } else {
      std::printf("usage: baton_attack [--rounds R] [--seconds S] [--attack NAME] | --short\n");
      return 2;
    }
  }
  return baton::RunAll(wishes);
}
