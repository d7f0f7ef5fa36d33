#include "tests/e2e/chaos/audit.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/metrics_page.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLook = absl::Milliseconds(100);

int CountEntries(const std::string& folder) {
  std::error_code error;
  int n = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) ++n;
  return n;
}

// Returns the value of "VmRSS:" or "State:" in /proc/PID/status; empty: the process is gone.
std::string StatusField(pid_t pid, const std::string& name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return "";
}

std::string RoleOf(const Member& member) {
  return member.name.substr(0, member.name.find_last_not_of("0123456789") + 1);
}

// Checks the series that must be zero, or equal to another series, on an idle worker.
void LookAtWorker(const Member& member, std::vector<std::string>* held) {
  if (!member.metrics) {
    held->push_back(member.name + " does not say where its metrics are");
    return;
  }
  const auto page = MetricsPage::Fetch(*member.metrics);
  if (!page.ok()) {
    held->push_back(member.name + ": " + std::string(page.status().message()));
    return;
  }
  const double total = page->Sum("baton_kv_capacity_pages");
  const double free = page->Sum("baton_kv_free_pages");  // pages with reusable KV count as free
  if (total <= 0 || free != total) {
    held->push_back(absl::StrFormat("%s: %g of %g pages free", member.name, free, total));
  }
  for (const char* name : {"baton_worker_prefill_prompts", "baton_worker_decode_rows",
                           "baton_worker_prefill_queued_tokens", "baton_worker_decode_waiting"}) {
    if (const double value = page->Sum(name); value != 0) {
      held->push_back(absl::StrFormat("%s: %s is %g", member.name, name, value));
    }
  }
  if (page->Sum("baton_worker_connected") != 1) {
    held->push_back(member.name + " is not connected to the router");
  }
}

std::vector<std::string> Held(Cluster* cluster) {
  std::vector<std::string> held;
  const auto front = MetricsPage::Fetch(cluster->url());
  if (!front.ok()) return {"router: " + std::string(front.status().message())};
  for (const char* name : {"baton_requests_running", "baton_queue_depth"}) {
    if (const double value = front->Sum(name); value != 0) {
      held.push_back(absl::StrFormat("router: %s is %g", name, value));
    }
  }
  const double connected = front->Sum("baton_workers");
  if (connected != kPrefillWorkers + kDecodeWorkers) {
    held.push_back(absl::StrFormat("router: %g workers are connected", connected));
  }
  int n_workers = 0;
  for (const Member& member : cluster->Members()) {
    if (member.is_router()) continue;
    ++n_workers;
    LookAtWorker(member, &held);
  }
  if (n_workers != kPrefillWorkers + kDecodeWorkers) {
    held.push_back(absl::StrFormat("%d worker processes live", n_workers));
  }
  return held;
}

// Parses "<NAME> ended with signal 9, ..." and "... status 0, ...".
struct Death {
  std::string name, how;
};

std::vector<Death> Deaths(const std::string& log) {
  std::vector<Death> deaths;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    char name[64], word[32];
    int number = 0;
    const size_t at = line.find("serve ");
    if (at == std::string::npos || line.find("warn") == std::string::npos) continue;
    if (std::sscanf(line.c_str() + at, "serve %63s ended with %31s %d", name, word, &number) == 3) {
      deaths.push_back({name, absl::StrCat(word, " ", number)});
    }
  }
  return deaths;
}

}  // namespace

std::vector<std::string> AwaitQuiet(Cluster* cluster, absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  while (true) {
    std::vector<std::string> held = Held(cluster);
    if (held.empty() || absl::Now() >= end) return held;
    absl::SleepFor(kLook);
  }
}

std::vector<DecodeReservations> TakeReservations(Cluster* cluster) {
  std::vector<DecodeReservations> all;
  for (const Member& member : cluster->Members()) {
    DecodeReservations holdings;
    holdings.member = member;
    const std::string state = StatusField(member.pid, "State");
    holdings.alive = !state.empty() && state.find('Z') == std::string::npos;
    const std::string proc = absl::StrCat("/proc/", member.pid);
    holdings.n_threads = CountEntries(proc + "/task");
    holdings.n_descriptors = CountEntries(proc + "/fd");
    holdings.rss_kb = std::atoll(StatusField(member.pid, "VmRSS").c_str());
    all.push_back(holdings);
  }
  return all;
}

std::vector<std::string> Growth(const std::vector<DecodeReservations>& before,
                                const std::vector<DecodeReservations>& after,
                                const GrowthLimits& limits) {
  std::vector<std::string> complaints;
  for (const DecodeReservations& old : before) {
    const auto now =
        std::find_if(after.begin(), after.end(), [&](const DecodeReservations& holdings) {
          return holdings.member.name == old.member.name;
        });
    if (now == after.end() || !now->alive) {
      complaints.push_back(old.member.name + " is not there any more");
      continue;
    }
    // A restarted worker may have met more peers than its predecessor, but not more than any worker
    // of its role.
    DecodeReservations max = old;
    for (const DecodeReservations& other : before) {
      if (RoleOf(other.member) != RoleOf(old.member)) continue;
      max.n_threads = std::max(max.n_threads, other.n_threads);
      max.n_descriptors = std::max(max.n_descriptors, other.n_descriptors);
      max.rss_kb = std::max(max.rss_kb, other.rss_kb);
    }
    const auto complain = [&](const char* what, int64_t had, int64_t has, int64_t slack) {
      if (has <= had + slack) return;
      complaints.push_back(absl::StrFormat("%s has %d %s; it had %d, and %d more are allowed",
                                           old.member.name, has, what, had, slack));
    };
    complain("threads", max.n_threads, now->n_threads, limits.threads);
    complain("descriptors", max.n_descriptors, now->n_descriptors, limits.descriptors);
    complain(
        "KiB of memory", max.rss_kb, now->rss_kb,
        limits.rss_kb + static_cast<int64_t>(limits.rss_share * static_cast<double>(max.rss_kb)));
  }
  return complaints;
}

std::vector<std::string> LogComplaints(const std::string& log,
                                       const std::vector<FaultRecord>& faults) {
  std::vector<std::string> complaints;
  // Expected ends of workers: as many as the faults caused.
  std::map<std::string, int> told;
  for (const FaultRecord& fault : faults) {
    if (fault.kind == FaultKind::kKill) ++told[fault.victim + " signal 9"];
    if (fault.kind == FaultKind::kTerminate) {
      ++told[fault.victim + " status 0"];
      ++told[fault.victim + " signal 15"];  // before its start was complete
    }
  }
  for (const Death& death : Deaths(log)) {
    if (--told[death.name + " " + death.how] < 0) {
      complaints.push_back(death.name + " ended with " + death.how + ", which no fault explains");
    }
  }
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    bool is_bad = line.find("CHECK failed") != std::string::npos ||
                  line.find("terminate called") != std::string::npos ||
                  line.find("Sanitizer") != std::string::npos;
    std::istringstream words(line);
    std::string time, level;
    words >> time >> level;
    is_bad = is_bad || level == "error";
    if (is_bad && complaints.size() < 20) complaints.push_back("log: " + line);
  }
  return complaints;
}

std::string ReservationsTable(const std::vector<DecodeReservations>& before,
                              const std::vector<DecodeReservations>& after) {
  std::string table = absl::StrFormat("%-10s %18s %18s %22s  (before -> after)\n", "process",
                                      "threads", "descriptors", "memory MiB");
  for (const DecodeReservations& now : after) {
    DecodeReservations old;
    for (const DecodeReservations& each : before) {
      if (each.member.name == now.member.name) old = each;
    }
    absl::StrAppend(
        &table, absl::StrFormat("%-10s %9d -> %5d %9d -> %5d %10.1f -> %8.1f%s\n", now.member.name,
                                old.n_threads, now.n_threads, old.n_descriptors, now.n_descriptors,
                                static_cast<double>(old.rss_kb) / 1024,
                                static_cast<double>(now.rss_kb) / 1024,
                                old.member.pid == now.member.pid ? "" : "  (a new process)"));
  }
  return table;
}

}  // namespace baton
