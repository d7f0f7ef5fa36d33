#include "common/log.h"

#include <unistd.h>

#include <algorithm>
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

// Returns the bytes of the UTF-8 character at the front; 0: there is none, or it controls a
// terminal.
size_t CharacterLength(std::string_view text) {
  const auto at = [text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = at(0);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  static constexpr unsigned kFirst[] = {0, 0, 0xa0, 0x800, 0x10000};  // below 0xa0: C1 controls
  const bool is_character = first >= 0xc0 && first < 0xf8 && code >= kFirst[length] &&
                            code < 0x110000 && (code < 0xd800 || code >= 0xe000);
  return is_character ? length : 0;
}

// Texts of peers come to the log: control characters and bytes that are no UTF-8 are written as
// \x1b, so that a line stays a line and does not steer a terminal.
std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0)
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[0]));
    else
      out.append(text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
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
      absl::StrFormat("%s %-5s %-9s %s\n", now, LevelName(level), g_name, Printable(text));
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace baton
