// The kernel kills a decode worker because its memory group is full (cgroup v1, "memory"; root
// only): its streams go on elsewhere with the tokens that they would have had, and the supervisor
// starts it again. Exit status 77: there is no such group to be made here, and nothing was shown.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotRun = 77;

// A memory group of this test's own, removed at its end.
class MemoryGroup {
 public:
  MemoryGroup() : folder_(absl::StrCat("/sys/fs/cgroup/memory/baton-oom-", ::getpid())) {
    std::error_code error;
    is_made_ = fs::create_directory(folder_, error);
  }
  ~MemoryGroup() {
    if (is_made_) WaitUntil(absl::Seconds(5), [&] { return ::rmdir(folder_.c_str()) == 0; });
  }
  bool Write(const std::string& file, const std::string& value) const {
    std::ofstream out(folder_ / file);
    out << value << std::flush;
    return is_made_ && out.good();
  }
  // Number of processes that the kernel has killed here.
  int64_t n_killed() const {
    std::ifstream file(folder_ / "memory.oom_control");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("oom_kill ")) return std::stoll(line.substr(9));
    return -1;
  }

 private:
  const fs::path folder_;
  bool is_made_ = false;
};

// Counts what does not hold.
class Verdict {
 public:
  void Require(bool holds, const char* what) {
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
    is_good_ &= holds;
  }
  bool is_good() const { return is_good_; }

 private:
  bool is_good_ = true;
};

int Run() {
  MemoryGroup group;
  // Memory that the worker has already is not counted here: the next pages that it touches are.
  group.Write("memory.swappiness", "0");  // a host with swap would write pages out instead
  if (!group.Write("memory.limit_in_bytes", "65536") || group.n_killed() != 0) {
    std::printf("NOT RUN: no memory group can be made (cgroup v1, root). Nothing was shown.\n");
    return kCannotRun;
  }
  const auto served =
      ServedBaton::Start({"--demo", "--prefill.reuse_kv=false", "--decode.reuse_kv=false"});
  if (!served.ok()) {
    std::printf("%s\n", std::string(served.status().message()).c_str());
    return 1;
  }
  const HttpClient client = (*served)->client();
  Verdict verdict;
  const double n_workers = MetricSum(client, "baton_workers");
  const std::vector<CrowdStream> quiet = RunCrowd(client, [] {});
  const pid_t victim = (*served)->Child("decode");
  const auto is_dead = [&] { return ::kill(victim, 0) != 0; };
  bool is_moved = false;
  std::vector<std::thread> more;  // rows that take pages of KV that no row had before
  const std::vector<CrowdStream> streams = RunCrowd(
      client,
      [&] {
        is_moved = group.Write("cgroup.procs", absl::StrCat(victim));
        for (int i = 0; i < 3; ++i)
          more.emplace_back([&] {
            RunCrowd(
                client, [] {}, is_dead);
          });
      },
      is_dead);
  for (std::thread& thread : more) thread.join();
  std::printf("%d answers, killed %d\n", AnswersOf(streams), static_cast<int>(group.n_killed()));
  verdict.Require(is_moved, "the worker is in the group");
  verdict.Require(WaitUntil(absl::Seconds(30), is_dead), "the worker has died");
  verdict.Require(group.n_killed() == 1, "the kernel killed it");
  for (size_t i = 0; i < streams.size(); ++i)
    verdict.Require(streams[i].text == quiet[i].text,
                    "a stream has the text of an undisturbed one");
  verdict.Require(
      (*served)->WaitForLog("ended with signal 9, starting it again", absl::Seconds(10)),
      "the supervisor says so");
  verdict.Require(WaitUntil(absl::Seconds(30),
                            [&] {
                              const pid_t now = (*served)->Child("decode");
                              return now != 0 && now != victim &&
                                     MetricSum(client, "baton_workers") == n_workers;
                            }),
                  "all workers are there again");
  const auto status = (*served)->Terminate();
  verdict.Require(status.ok() && *status == 0, "the cluster ends in order");
  return verdict.is_good() ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main() { return baton::Run(); }
