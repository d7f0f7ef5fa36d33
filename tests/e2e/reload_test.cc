// `baton serve` reads its file again at SIGHUP: what may change goes by the new values in every
// process, anything else stays and is named, and a file that is refused changes nothing.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

bool WaitUntil(const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return condition();
}

struct Rig {
  Rig() {
    folder.Write("baton.yaml", "log:\n  level: info\n");
    auto started = ServedBaton::Start({"--demo", "--config", folder.file("baton.yaml")});
    REQUIRE(started.ok());
    served = *std::move(started);
  }
  // Returns the log from then on, once it has `text`.
  std::string Reload(const std::string& yaml, const std::string& text) {
    const size_t before = served->log().size();
    folder.Write("baton.yaml", yaml);
    ::kill(served->pid(), SIGHUP);
    CHECK(WaitUntil([&] { return absl::StrContains(served->LogFrom(before), text); }));
    return served->LogFrom(before);
  }
  bool MetricsHave(const std::string& text) const {
    const auto page = served->client().Get("/metrics");
    return page.ok() && absl::StrContains(page->body, text);
  }
  int Status(int max_tokens = 4) const {
    const auto answer = served->client().Post(
        "/v1/completions",
        absl::StrCat(R"({"prompt":"a","ignore_eos":true,"max_tokens":)", max_tokens, "}"));
    return answer.ok() ? answer->status : 0;
  }

  TempFolder folder;
  std::unique_ptr<ServedBaton> served;
};

TEST_CASE("SIGHUP brings settings that may change to every process, and names the others") {
  Rig rig;
  const std::vector<pid_t> children = rig.served->Children();
  const std::string file = rig.folder.file("baton.yaml");
  std::string log = rig.Reload(
      "log:\n  level: debug\nserver:\n  slo_ttft: 2s\n  port: 1\nmodel:\n  dtype: int8\n",
      "settings changed: ");
  CHECK(absl::StrContains(
      log, absl::StrCat("model.dtype stays auto: ", file, ":7 has int8, which takes a restart")));
  CHECK_FALSE(absl::StrContains(log, "server.port stays"));  // a flag goes before the file
  // Each process says at the new level what it has taken.
  for (const char* process : {"router", "prefill0", "prefill1", "decode0"}) {
    INFO(process);
    CHECK(WaitUntil([&] {
      return absl::StrContains(rig.served->log(), absl::StrCat(" debug ", process, " "));
    }));
  }
  CHECK(WaitUntil([&] { return rig.MetricsHave("slo=\"ttft\"} 2\n"); }));
  CHECK(rig.Status() == 200);
  CHECK(rig.served->Children() == children);

  // A file that is refused: the values before it stay.
  log = rig.Reload("server:\n  slo_ttft: 3s\n  request_timeout: soon\n",
                   "the settings stay as they were: ");
  CHECK(absl::StrContains(log, absl::StrCat(file, ":3: server.request_timeout")));
  CHECK(rig.Status() == 200);
  CHECK(rig.MetricsHave("slo=\"ttft\"} 2\n"));

  // A role that is started again has the values of the last reload: no line of level info.
  const std::string info = " info  decode0 ";
  CHECK(absl::StrContains(rig.served->log(), info));
  rig.Reload("log:\n  level: error\n", "settings changed: server.slo_ttft 0, log.level error\n");
  const size_t before = rig.served->log().size();
  const pid_t killed = rig.served->Child("decode");
  ::kill(killed, SIGKILL);
  CHECK(WaitUntil([&] {
    const pid_t now = rig.served->Child("decode");
    return now != 0 && now != killed && rig.MetricsHave("prefers=\"decode\",role=\"router\"} 1\n");
  }));
  CHECK(WaitUntil([&] { return rig.Status() == 200; }));
  CHECK_FALSE(absl::StrContains(rig.served->LogFrom(before), info));
  const auto status = rig.served->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

TEST_CASE("limits of requests change while requests run") {
  Rig rig;
  rig.Reload("server:\n  request_timeout: 10ms\n", "settings changed: ");
  CHECK(WaitUntil([&] { return rig.Status(200) == 504; }));
  rig.Reload("router:\n  max_waiting: 1\n", "settings changed: ");
  std::atomic<bool> is_over = false;
  std::thread holds([&] {
    while (!is_over) rig.Status(200);
  });
  CHECK(WaitUntil([&] { return rig.Status(200) == 429; }));
  is_over = true;
  holds.join();
  rig.Reload("", "settings changed: router.max_waiting 1024");
  CHECK(WaitUntil([&] { return rig.Status() == 200; }));
}

}  // namespace
}  // namespace baton
