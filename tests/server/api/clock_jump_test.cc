// A change of the machine's clock moves no deadline. This program has its own clock_gettime, which
// adds an offset to the time of day; forked processes share the offset.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <ctime>
#include <fstream>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "server/process/supervisor.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace {

std::atomic<int64_t>* OffsetSeconds() {
  static auto* const shared = static_cast<std::atomic<int64_t>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return shared;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += OffsetSeconds()->load();
  return static_cast<int>(result);
}

namespace baton {
namespace {

bool WaitUntil(const std::function<bool()>& condition) {
  for (const absl::Time end = MonotonicNow() + absl::Seconds(10); MonotonicNow() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return condition();
}

// Returns the child processes of a process.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

TEST_CASE("the clock of this test jumps") {
  const absl::Time before = absl::Now(), steady = MonotonicNow();
  *OffsetSeconds() = 3600;
  CHECK(absl::Now() - before > absl::Minutes(59));
  CHECK(MonotonicNow() - steady < absl::Minutes(1));
  *OffsetSeconds() = 0;
}

TEST_CASE("deadlines of connections") {
  HttpServerOptions http;
  http.header_timeout = absl::Milliseconds(400);
  Served served(http);
  RawClient idle(served.port), half(served.port);
  REQUIRE(idle.Send(Get("/livez")));
  REQUIRE(idle.ReadUntil("ok"));
  REQUIRE(half.Send("GET /livez HT"));
  SECTION("backwards: half a header still runs into its own") {
    *OffsetSeconds() = -3600;
    CHECK(WaitUntil([&] { return half.ReadUntil("HTTP/1.1 408", absl::Milliseconds(10)); }));
  }
  SECTION("forwards: who is idle stays") {
    *OffsetSeconds() = 3600;
    // The connection has a running timer: for a late header.
    REQUIRE(idle.Send("GET /li"));
    absl::SleepFor(absl::Milliseconds(100));
    REQUIRE(idle.Send("vez HTTP/1.1\r\nHost: a\r\n\r\n"));
    idle.received.clear();
    CHECK(idle.ReadUntil("ok"));
    *OffsetSeconds() = 7200;
    absl::SleepFor(absl::Milliseconds(600));  // the old timer fires meanwhile
    idle.received.clear();
    CHECK(idle.Send(Get("/livez")));
    CHECK(idle.ReadUntil("ok", absl::Seconds(5)));
  }
  *OffsetSeconds() = 0;
}

TEST_CASE("a role that died is started again when the clock goes back meanwhile") {
  *OffsetSeconds() = 0;
  const pid_t family = ::fork();
  if (family == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    SupervisorOptions options;
    options.config.model.name = "m";
    options.config.model.path = "/model";
    options.config.server.http.port = 0;
    options.program = BATON_FAKE_ROLE;
    options.min_pause = absl::Seconds(1);
    ::_exit(RunSupervisor(std::move(options)));
  }
  REQUIRE(WaitUntil([&] { return ChildrenOf(family).size() == 4; }));
  absl::SleepFor(absl::Milliseconds(300));  // all processes have reported that they are ready
  ::kill(ChildrenOf(family)[1], SIGKILL);
  REQUIRE(WaitUntil([&] { return ChildrenOf(family).size() == 3; }));
  *OffsetSeconds() = -3600;
  CHECK(WaitUntil([&] { return ChildrenOf(family).size() == 4; }));
  *OffsetSeconds() = 0;
  ::kill(family, SIGTERM);
  ::waitpid(family, nullptr, 0);
}

}  // namespace
}  // namespace baton
