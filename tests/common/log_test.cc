#include "common/log.h"

#include "common/log_format.h"
#include "common/log_repeats.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>

namespace baton {
namespace {

template <typename Fn>
std::string StderrOf(const Fn& says) {
  std::array<int, 2> pipe;
  REQUIRE(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(pipe[1], STDERR_FILENO);
  says();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(pipe[1]);
  std::array<char, 4096> lines;
  const ssize_t n = ::read(pipe[0], lines.data(), lines.size());
  ::close(pipe[0]);
  return std::string(lines.data(), n > 0 ? static_cast<size_t>(n) : 0);
}

// Returns what a line has after level and process.
std::string Written(const std::string& text) {
  const std::string all = StderrOf([&] { LogInfo("%s", text); });
  const size_t at = all.find("baton     ");
  REQUIRE(at != std::string::npos);
  REQUIRE(all.back() == '\n');
  return all.substr(at + 10, all.size() - at - 11);
}

}  // namespace

TEST_CASE("a place in the code that repeats itself is written as often as LogRepeats allows") {
  int written = 0;
  for (int i = 0; i < 2 * LogRepeats::kMaxLines; ++i) {
    const std::string lines = StderrOf([&] { LogWarn("the same of %d", i); });
    written += static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
  }
  CHECK(written == LogRepeats::kMaxLines);
  CHECK(StderrOf([] { LogWarn("another place"); }).find("another place") != std::string::npos);
  CHECK(StderrOf([] { LogInfo("a request"); }).find("a request") != std::string::npos);
  const std::string told = StderrOf([] { TellLogRepeats(); });
  CHECK(told.find("20 more within 10s like: the same of 39\n") != std::string::npos);
  CHECK(StderrOf([] { TellLogRepeats(); }).empty());
}

TEST_CASE("plain text and characters of UTF-8 are written as they are") {
  for (const char* text :
       {"", "worker w5 is lost: \"why\" \\ 100 %", "Qwen3-é-模型-\xf0\x9f\x98\x80"})
    CHECK(Written(text) == text);
}

TEST_CASE("what peers send stays within its line and steers no terminal") {
  CHECK(Written("a\nerror forged") == "a\\x0aerror forged");
  CHECK(Written("\x1b[31m\r\t\x7f") == "\\x1b[31m\\x0d\\x09\\x7f");
  CHECK(Written(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(Written("\xc2\x9b!") == "\\xc2\\x9b!");  // a control character beyond ASCII
}

TEST_CASE("bytes that are no UTF-8 are written as numbers") {
  CHECK(Written("\xff\xc0") == "\\xff\\xc0");
  CHECK(Written("\xc1\x81") == "\\xc1\\x81");  // longer than need be
  CHECK(Written("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(Written("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // half a surrogate pair
  CHECK(Written("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond the last character
  CHECK(Written("\xe6\xa8") == "\\xe6\\xa8");                    // cut
}

TEST_CASE("a line as JSON is one object, whatever its text is") {
  const auto line = [](std::string_view text) {
    return LogLine(LogFormat::kJson, absl::FromUnixMillis(1'767'323'045'678), LogLevel::kWarn, "w0",
                   text);
  };
  const std::string head = R"({"time":"2026-01-02T03:04:05.678Z","level":"warn","process":"w0",)";
  CHECK(line("worker w5 is lost: \"why\" \\ \n") ==
        head + R"("message":"worker w5 is lost: \"why\" \\ \\x0a"})" + "\n");
  CHECK(line("request r-1 200 stop") ==
        head + R"("request_id":"r-1","message":"request r-1 200 stop"})" + "\n");
  CHECK(line("request r-1 trace 0af7 200") ==
        head + R"("request_id":"r-1","trace_id":"0af7","message":"request r-1 trace 0af7 200"})" +
            "\n");
  CHECK(line("request r-1.2 trace 0af7-b7: failed") ==
        head + R"("request_id":"r-1.2","trace_id":"0af7","span_id":"b7",)" +
            R"("message":"request r-1.2 trace 0af7-b7: failed"})" + "\n");
  CHECK(line("request r-1: it failed") ==
        head + R"("request_id":"r-1","message":"request r-1: it failed"})" + "\n");
  CHECK(line("request") == head + R"("message":"request"})" + "\n");
  CHECK(LogLine(LogFormat::kText, absl::FromUnixMillis(1'767'323'045'678), LogLevel::kInfo, "w0",
                "up") == "2026-01-02T03:04:05.678Z info  w0        up\n");
}

}  // namespace baton
