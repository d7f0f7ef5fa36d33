#include "server/config/config_reload.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log_level.h"
#include "server/config/live_settings.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

// A file that the test writes, as a process reads it.
struct FileSource {
  struct Parsed {
    Config config;
    Settings settings;
  };
  std::string text;

  absl::StatusOr<std::shared_ptr<const Settings>> operator()() const {
    auto parsed = std::make_shared<Parsed>();
    DeclareSettings(&parsed->config, &parsed->settings);
    RETURN_IF_ERROR(parsed->settings.ReadText(text, "baton.yaml"));
    return std::shared_ptr<const Settings>(parsed, &parsed->settings);
  }
};

struct Rig {
  explicit Rig(bool is_quiet = false, const Config& given = {})
      : reload(given, std::ref(source), is_quiet) {}
  ~Rig() { ChangeLogLevel(LogLevel::kInfo); }

  // Reads `text`, and returns what the log says to it.
  std::string Read(const std::string& text) {
    source.text = text;
    const TempFolder folder;
    const std::string path = folder.file("log");
    const int before = ::dup(STDERR_FILENO);
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    REQUIRE(::dup2(file, STDERR_FILENO) == STDERR_FILENO);
    was_taken = reload.Read();
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    ::close(file);
    std::stringstream log;
    log << std::ifstream(path).rdbuf();
    return log.str();
  }

  FileSource source;
  ConfigReload reload;
  bool was_taken = false;
};

TEST_CASE("live settings are taken; any other stays and is named with its place") {
  Rig rig;
  const std::string log =
      rig.Read("server:\n  request_timeout: 5s\n  port: 9000\nmodel:\n  path: /other\n");
  CHECK(rig.was_taken);
  const Config& config = rig.reload.config();
  CHECK(config.server.api.request_timeout == absl::Seconds(5));
  CHECK(config.server.http.port == 8000);
  CHECK(config.model.path == "");
  CHECK(absl::StrContains(log, "settings changed: server.request_timeout 5s\n"));
  CHECK(absl::StrContains(
      log, "server.port stays 8000: baton.yaml:3 has 9000, which takes a restart\n"));
  CHECK(absl::StrContains(
      log, "model.path stays \"\": baton.yaml:5 has /other, which takes a restart\n"));
  // Keys that the file has no more are at their defaults again; others are named each time.
  const std::string later = rig.Read("server:\n  port: 9000\n");
  CHECK(rig.was_taken);
  CHECK(config.server.api.request_timeout == absl::Hours(24));
  CHECK(absl::StrContains(later, "server.port stays 8000"));
  CHECK(absl::StrContains(rig.Read(""), "no setting has changed"));
  CHECK_FALSE(rig.was_taken);
}

TEST_CASE("a line that is gone from the file, of a setting that cannot change, is told as well") {
  Config given;
  given.server.http.port = 9000;
  Rig rig(false, given);
  CHECK(absl::StrContains(rig.Read(""),
                          "server.port stays 9000: its default is 8000, which takes a restart\n"));
}

TEST_CASE("a file that is refused changes nothing") {
  Rig rig;
  rig.Read("router:\n  max_waiting: 7\n");
  for (const char* bad : {"router:\n  max_waiting: 9\nserver:\n  request_timeout: soon\n",
                          "router:\n  max_waiting: 9\n  max_waitings: 3\n", "router: [\n",
                          "router:\n  max_waiting: 0\n"}) {
    const std::string log = rig.Read(bad);
    INFO(bad);
    CHECK_FALSE(rig.was_taken);
    CHECK(absl::StrContains(log, "the settings stay as they were: baton.yaml:"));
    CHECK(rig.reload.config().router.router.max_waiting == 7);
  }
}

TEST_CASE("the level of the log changes at once, and a quiet process says only debug lines") {
  Rig rig(/*is_quiet=*/true);
  CHECK(rig.Read("log:\n  level: warn\nserver:\n  port: 1\n") == "");  // port: another's to say
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
  CHECK(LogEnabled(LogLevel::kWarn));
  CHECK(absl::StrContains(rig.Read("log:\n  level: debug\n"), "settings changed: log.level debug"));
}

TEST_CASE("a configuration that differs in others takes the live values alone") {
  Rig rig;
  rig.Read("server:\n  slo_itl: 40ms\n  shutdown_timeout: 9s\ntracing:\n  sample: 0.25\n");
  Config running;
  running.model.path = "/resolved";
  running.server.http.port = 4321;
  TakeLiveValues(rig.reload, &running);
  CHECK(running.server.api.slo.itl == absl::Milliseconds(40));
  CHECK(running.server.shutdown_timeout == absl::Seconds(9));
  CHECK(running.tracing.sample == 0.25);
  CHECK(running.model.path == "/resolved");
  CHECK(running.server.http.port == 4321);
}

TEST_CASE("every live key is a setting, and the reference says what it does") {
  Config config;
  Settings settings;
  DeclareSettings(&config, &settings);
  const std::string page = LiveSettingsMarkdown();
  REQUIRE(LiveSettings().size() >= 9);
  for (const LiveSetting& live : LiveSettings()) {
    INFO(live.key);
    CHECK(settings.Find(live.key) != nullptr);
    CHECK(IsLive(live.key));
    CHECK(absl::StrContains(page, absl::StrCat("| `", live.key, "` | ", live.effect, " |\n")));
  }
  CHECK_FALSE(IsLive("model.path"));
}

}  // namespace
}  // namespace baton
