#include "common/log.h"

#include <unistd.h>

#include <cstring>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton {
namespace {

// Constant after SetLog, which runs before any thread: the one process-wide state of the logger.
LogLevel g_min = LogLevel::kInfo;
char g_name[32] = "baton";

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void SetLog(LogLevel min, std::string_view process_name) {
  g_min = min;
  const size_t length = std::min(process_name.size(), sizeof(g_name) - 1);
  std::memcpy(g_name, process_name.data(), length);
  g_name[length] = '\0';
}

bool LogEnabled(LogLevel level) { return level >= g_min; }

void WriteLogLine(LogLevel level, std::string_view text) {
  const std::string now =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string line =
      absl::StrFormat("%s %-5s %-9s %s\n", now, LevelName(level), g_name, text);
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace baton
