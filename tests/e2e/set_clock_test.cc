// The machine's clock is set while a served cluster works: libfaketime moves the time of day of all
// its processes by a minute and a day, to and fro. Their monotonic clock goes on as it was.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string FaketimeLibrary() {
  for (const auto& folder : fs::directory_iterator("/usr/lib")) {
    const fs::path library = folder.path() / "faketime" / "libfaketimeMT.so.1";
    if (fs::exists(library)) return library;
  }
  return "";
}

// `baton serve --demo` whose processes see a clock that the test sets.
class ClockedBaton {
 public:
  explicit ClockedBaton(std::vector<std::string> args) {
    const std::string library = FaketimeLibrary();
    INFO("libfaketime is missing: scripts/packages.sh installs it");
    REQUIRE(!library.empty());
    Set("+0");
    const std::vector<std::pair<std::string, std::string>> environment = {
        {"LD_PRELOAD", library},
        {"FAKETIME_TIMESTAMP_FILE", clock_},
        {"FAKETIME_NO_CACHE", "1"},
        {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
        {"FAKETIME_DONT_RESET", "1"}};
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    args.insert(args.begin(), "--demo");
    auto started = ServedBaton::Start(args);
    for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    served_ = *std::move(started);
  }
  ServedBaton& served() { return *served_; }
  // Moves the clock of all processes: "-1d" is a day before the true time.
  void Set(const std::string& offset) {
    const std::string next = clock_ + ".next";
    std::ofstream(next) << offset << "\n";
    fs::rename(next, clock_);  // never half written
  }
  // The date that a new answer says.
  int64_t Created() {
    const auto answer =
        served_->client().Post("/v1/completions", R"({"prompt":"a","max_tokens":1})");
    REQUIRE(answer.ok());
    const std::string mark = "\"created\":";
    const size_t at = answer->body.find(mark);
    REQUIRE(at != std::string::npos);
    return std::atoll(answer->body.c_str() + at + mark.size());
  }

 private:
  const TempFolder folder_;
  const std::string clock_ = folder_.file("clock");
  std::unique_ptr<ServedBaton> served_;
};

// A minute and a day, forwards and backwards.
const char* const kJumps[] = {"+60", "-60", "+1d", "-1d", "+0"};

// Returns the seconds from `begin` until the condition holds; the test fails after 30 s.
double SecondsUntil(absl::Time begin, const ServedBaton& served,
                    const std::function<bool()>& condition) {
  const bool holds = WaitUntil(absl::Seconds(30), condition);
  INFO(served.log());
  REQUIRE(holds);
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

}  // namespace

TEST_CASE("the clock is set by a minute and a day: nothing ends early or late") {
  ClockedBaton clocked({"--server.header_timeout", "2s"});
  const HttpClient client = clocked.served().client();
  {
    const int64_t now = absl::ToUnixSeconds(absl::Now());
    clocked.Set("-1d");
    // The processes see the clock that is set, once the library has read its file anew.
    CHECK(WaitUntil(absl::Seconds(5), [&] { return clocked.Created() < now - 80'000; }));
    clocked.Set("+0");
    CHECK(WaitUntil(absl::Seconds(5), [&] { return clocked.Created() >= now - 60; }));
  }

  // Streams go on, and the same tokens come.
  const auto texts = [](const std::vector<CrowdStream>& streams) {
    std::vector<std::string> out;
    for (const CrowdStream& stream : streams) out.push_back(stream.text);
    return out;
  };
  const std::vector<std::string> wanted = texts(RunCrowd(client, [] {}));
  const size_t quiet_log = clocked.served().log().size();
  std::thread setter;
  std::atomic<bool> all_set = false;
  const std::vector<CrowdStream> disturbed = RunCrowd(
      client,
      [&] {
        setter = std::thread([&] {
          for (const char* const jump : kJumps) {
            clocked.Set(jump);
            absl::SleepFor(absl::Seconds(1));  // longer than two signs of life
          }
          all_set = true;
        });
      },
      [&] { return all_set.load(); });
  setter.join();
  CHECK(texts(disturbed) == wanted);
  absl::Duration longest;
  for (const CrowdStream& stream : disturbed) longest = std::max(longest, stream.longest_gap);
  std::cout << "longest gap of " << AnswersOf(disturbed)
            << " streams while the clock is set: " << longest << "\n";
  CHECK(longest < absl::Seconds(2));
  CHECK(MetricSum(client, "baton_failovers_total") == 0);
  const std::string log = clocked.served().LogFrom(quiet_log);
  INFO(log);
  CHECK(log.find("lost") == std::string::npos);
  CHECK(log.find("gets nothing new") == std::string::npos);

  for (const char* const jump : {"+1d", "-1d"}) {
    INFO(jump);
    // The deadline of a header.
    const ServedBaton& served = clocked.served();
    RawClient half(served.url().port);
    absl::Time begin = absl::Now();
    REQUIRE(half.Send("GET /livez HT"));
    absl::SleepFor(absl::Milliseconds(200));
    clocked.Set(jump);
    const double seconds = SecondsUntil(
        begin, served, [&] { return half.ReadUntil("HTTP/1.1 408", absl::Milliseconds(10)); });
    std::cout << jump << ": half a header of 2 s ends after " << seconds << " s\n";
    CHECK(seconds > 1.9);
    CHECK(seconds < 4);
    // The lease of a worker: silent for 3 s, it is lost, and when it goes on it is back.
    const pid_t worker = served.Child("decode");
    REQUIRE(worker > 0);
    const size_t before = served.log().size();
    begin = absl::Now();
    ::kill(worker, SIGSTOP);
    absl::SleepFor(absl::Milliseconds(500));
    clocked.Set("+0");
    const double lost = SecondsUntil(begin, served, [&] {
      return served.LogFrom(before).find("was silent for more") != std::string::npos;
    });
    std::cout << jump << ": a stopped worker is lost after " << lost << " s\n";
    CHECK(lost > 2);  // 3 s after its last sign of life: each 400 ms, later on a busy machine
    CHECK(lost < 6);
    // The clock is set while the worker stands still: after a silent second a thread of gRPC 1.51
    // sleeps until a time of day, and one set back right before that holds the thread for a day.
    clocked.Set(jump);
    begin = absl::Now();
    ::kill(worker, SIGCONT);
    const auto is_ready = [&] {
      const auto ready = client.Get("/readyz");
      return ready.ok() && ready->status == 200;
    };
    CHECK(SecondsUntil(begin, served, is_ready) < 10);
    // A role that dies is started again.
    begin = absl::Now();
    ::kill(worker, SIGKILL);
    clocked.Set("+0");
    CHECK(SecondsUntil(begin, served, [&] {
            const pid_t next = served.Child("decode");
            return next > 0 && next != worker && is_ready();
          }) < 20);
  }
  CHECK(texts(RunCrowd(client, [] {})) == wanted);
}

}  // namespace baton
