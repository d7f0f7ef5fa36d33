#include "server/process/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/process/launch_spec.h"
#include "server/process/role_process.h"

namespace baton {
namespace {

bool WaitUntil(const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return condition();
}

// A supervisor in its own process, with fake roles.
class Family {
 public:
  explicit Family(Config config) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      SupervisorOptions options;
      options.config = std::move(config);
      options.program = BATON_FAKE_ROLE;
      options.min_pause = absl::Milliseconds(20);
      ::_exit(RunSupervisor(std::move(options)));
    }
    ::close(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    output_ = ends[0];
  }
  ~Family() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }
  std::vector<pid_t> Children() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children"));
    std::vector<pid_t> children;
    for (pid_t child = 0; file >> child;) children.push_back(child);
    return children;
  }
  bool WaitForText(const std::string& text) {
    return WaitUntil([&] {
      char chunk[4096];
      for (ssize_t n = 0; (n = ::read(output_, chunk, sizeof chunk)) > 0;) {
        log.append(chunk, static_cast<size_t>(n));
      }
      return log.find(text) != std::string::npos;
    });
  }
  // Returns the exit status, or -1.
  int Wait() {
    int status = 0;
    if (!WaitUntil([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = 0;
    WaitForText("\n");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid() const { return pid_; }
  std::string log;

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

Config Named(const std::string& name) {
  Config config;
  config.model.name = name;
  config.model.path = "/model";
  config.server.http.port = 0;
  return config;
}

bool IsGone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

TEST_CASE("every role is started, the ready line tells the URL, SIGTERM ends all with 0") {
  Family family(Named("m"));
  REQUIRE(family.WaitForText("ready  http://127.0.0.1:8765  model m  2 prefill + 1 decode\n"));
  CHECK(family.WaitForText("curl"));
  CHECK(family.WaitForText("\"temperature\":0}'\n"));  // one right answer, each time
  CHECK(family.WaitForText("decode0  KV cache 1.0 MiB = 16 pages = 1024 tokens"));
  const std::vector<pid_t> children = family.Children();
  CHECK(children.size() == 4);
  ::kill(family.pid(), SIGTERM);
  CHECK(family.Wait() == 0);
  for (const pid_t child : children) CHECK(IsGone(child));
}

TEST_CASE("workers dial by TCP where the settings name an address") {
  Config config = Named("tcp");
  config.router.control = "127.0.0.1:4000";
  Family family(config);
  CHECK(family.WaitForText("decode0  KV cache 1.0 MiB"));
  ::kill(family.pid(), SIGTERM);
  CHECK(family.Wait() == 0);
}

TEST_CASE("a role that dies is started again, each time") {
  Family family(Named("m"));
  REQUIRE(family.WaitForText("ready  http"));
  REQUIRE(WaitUntil([&] { return family.Children().size() == 4; }));
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<pid_t> before = family.Children();
    REQUIRE(before.size() == 4);
    ::kill(before[i], SIGKILL);
    REQUIRE(WaitUntil([&] {
      const std::vector<pid_t> now = family.Children();
      return now.size() == 4 && std::find(now.begin(), now.end(), before[i]) == now.end();
    }));
  }
  CHECK(family.WaitForText("starting it again"));
  ::kill(family.pid(), SIGINT);
  CHECK(family.Wait() == 0);
}

TEST_CASE("a worker that is killed while others still start is started again") {
  Family family(Named("slow"));  // the cluster is up only after the router gets SIGUSR1
  REQUIRE(family.WaitForText("decode0  KV cache"));
  REQUIRE(WaitUntil([&] { return family.Children().size() == 4; }));
  for (size_t i = 1; i < 4; ++i) {
    const std::vector<pid_t> before = family.Children();
    REQUIRE(before.size() == 4);
    ::kill(before[1], SIGKILL);
    REQUIRE(WaitUntil([&] {
      const std::vector<pid_t> now = family.Children();
      return now.size() == 4 && std::find(now.begin(), now.end(), before[1]) == now.end();
    }));
  }
  CHECK(family.log.find("ready  http") == std::string::npos);
  ::kill(family.Children().front(), SIGUSR1);
  CHECK(family.WaitForText("ready  http"));
  ::kill(family.pid(), SIGTERM);
  CHECK(family.Wait() == 0);
}

TEST_CASE("a worker that is killed each time before it is ready ends everything with 1") {
  Family family(Named("dies"));
  CHECK(family.Wait() == 1);
  CHECK(family.log.find("starting it again") != std::string::npos);
  CHECK(family.log.find("ended with signal 9 before the cluster was up") != std::string::npos);
}

TEST_CASE("a role that cannot start ends everything with 1") {
  Family family(Named("fails"));
  CHECK(family.Wait() == 1);
  CHECK(family.log.find("ended with status 2") != std::string::npos);
}

TEST_CASE("roles that do not listen are killed at the deadline, or at a second signal") {
  Config config = Named("deaf");
  config.server.shutdown_timeout = absl::Hours(1);
  Family family(config);
  REQUIRE(family.WaitForText("ready  http"));
  const std::vector<pid_t> children = family.Children();
  ::kill(family.pid(), SIGTERM);
  absl::SleepFor(absl::Milliseconds(100));
  CHECK(family.Children().size() == 4);
  ::kill(family.pid(), SIGTERM);
  CHECK(family.Wait() == 0);
  for (const pid_t child : children) CHECK(IsGone(child));

  config.server.shutdown_timeout = absl::ZeroDuration();
  Family patient(config);
  REQUIRE(patient.WaitForText("ready  http"));
  ::kill(patient.pid(), SIGTERM);
  CHECK(patient.Wait() == 0);
}

TEST_CASE("no role outlives a killed supervisor") {
  Family family(Named("m"));
  REQUIRE(family.WaitForText("ready  http"));
  const std::vector<pid_t> children = family.Children();
  // This process reaps the orphans.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::kill(family.pid(), SIGKILL);
  CHECK(family.Wait() == -1);
  CHECK(WaitUntil([&] {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return std::all_of(children.begin(), children.end(), IsGone);
  }));
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_CASE("orders and reports survive the way") {
  LaunchSpec order;
  for (size_t i = 0; i < order.key.size(); ++i) order.key[i] = static_cast<uint8_t>(7 * i);
  order.arguments = {"serve", "", "--model.name=a\tb\nc \\ \"d\"", "ä"};
  order.settings = "a:\n  b: 1\n";
  const auto copy = LaunchSpec::Parse(order.Text());
  REQUIRE(copy.ok());
  CHECK(copy->key == order.key);
  CHECK(copy->arguments == order.arguments);
  CHECK(copy->settings == order.settings);
  for (const char* bad : {"", "\n", "00\n", "zz"}) CHECK_FALSE(LaunchSpec::Parse(bad).ok());
  CHECK_FALSE(ParseKey(std::string(63, '0')).ok());
  CHECK_FALSE(ParseKey(std::string(64, 'G')).ok());

  StartReport report;
  report.kind = StartReport::Kind::kKvCache;
  report.kv_bytes = int64_t{5} << 40;
  report.max_context = 3;
  std::string line = ReportLine(report);
  line.pop_back();
  CHECK(ParseReportLine(line)->kv_bytes == report.kv_bytes);
  for (const char* bad : {"", "x", "http", "http x", "kv 1 2", "progress", "ready now"}) {
    CHECK_FALSE(ParseReportLine(bad).has_value());
  }
}

TEST_CASE("CPU lists") {
  CHECK(*ParseCpuList("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(*ParseCpuList("8,0-2,1") == std::vector<int>{0, 1, 2, 8});
  CHECK(ParseCpuList("")->empty());
  CHECK(CpuListText({0, 1, 2, 8}) == "0-2,8");
  for (const char* bad : {"a", "1-", "-1", "3-1", "1-2-3", "0-99999999", "0;1"}) {
    INFO(bad);
    CHECK_FALSE(ParseCpuList(bad).ok());
  }
}

TEST_CASE("KV memory is what contexts need, within a share of the machine") {
  KvSizing sizing;
  sizing.page_bytes = 1000;
  sizing.pages_per_context = 10;
  sizing.contexts = 5;
  sizing.memory_bytes = 1000000;
  sizing.n_workers = 2;
  CHECK(ChooseKvBytes(sizing) == 50000);
  sizing.contexts = 1000;
  CHECK(ChooseKvBytes(sizing) == 125000);
  sizing.memory_bytes = 1000;
  CHECK(ChooseKvBytes(sizing) == 2000);
}

}  // namespace
}  // namespace baton
