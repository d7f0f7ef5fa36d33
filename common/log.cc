#include "common/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log_format.h"
#include "common/log_level.h"
#include "common/log_repeats.h"

namespace baton {
namespace {

// The one process-wide state of the logger. Name and format are constant after SetLog and
// SetLogFormat, which run before any thread; the level may change.
std::atomic<LogLevel> g_min = LogLevel::kInfo;
char g_name[32] = "baton";
LogFormat g_format = LogFormat::kText;

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

// A printable text as a string of JSON.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : Printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Takes the word behind `before` from the front; empty: there is none.
std::string_view TakeWord(std::string_view before, std::string_view* text) {
  if (!text->starts_with(before)) return "";
  const size_t end = text->find(' ', before.size());
  if (end == std::string_view::npos) return "";
  const std::string_view word = text->substr(before.size(), end - before.size());
  text->remove_prefix(end);
  return word;
}

// Without the end of `request ID: what`.
std::string_view WithoutColon(std::string_view word) {
  return word.ends_with(':') ? word.substr(0, word.size() - 1) : word;
}

std::string JsonLine(const std::string& time, LogLevel level, std::string_view process,
                     std::string_view text) {
  std::string_view rest = text;
  const std::string_view id = WithoutColon(TakeWord("request ", &rest));
  const std::string_view trace = WithoutColon(id.empty() ? "" : TakeWord(" trace ", &rest));
  const size_t dash = std::min(trace.find('-'), trace.size());
  std::string line = absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", LevelName(level),
                                  "\",\"process\":", Quoted(process));
  if (!id.empty()) absl::StrAppend(&line, ",\"request_id\":", Quoted(id));
  if (!trace.empty()) absl::StrAppend(&line, ",\"trace_id\":", Quoted(trace.substr(0, dash)));
  if (dash < trace.size()) absl::StrAppend(&line, ",\"span_id\":", Quoted(trace.substr(dash + 1)));
  return absl::StrCat(line, ",\"message\":", Quoted(text), "}\n");
}

void Write(LogLevel level, std::string_view text) {
  const std::string line = LogLine(g_format, absl::Now(), level, g_name, text);
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

struct RepeatedLines {
  std::mutex mutex;
  LogRepeats repeats;
};

// Made with the first line and never destroyed: threads may write until the process ends.
RepeatedLines& Repeated() {
  static auto* const repeated = new RepeatedLines();
  return *repeated;
}

}  // namespace

void SetLogFormat(LogFormat format) { g_format = format; }

std::string LogLine(LogFormat format, absl::Time time, LogLevel level, std::string_view process,
                    std::string_view text) {
  const std::string now = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  if (format == LogFormat::kJson) return JsonLine(now, level, process, text);
  return absl::StrFormat("%s %-5s %-9s %s\n", now, LevelName(level), process, Printable(text));
}

void SetLog(LogLevel min, std::string_view process_name) {
  ChangeLogLevel(min);
  const size_t length = std::min(process_name.size(), sizeof(g_name) - 1);
  std::memcpy(g_name, process_name.data(), length);
  g_name[length] = '\0';
}

LogLevel LogLevelOf(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warn") return LogLevel::kWarn;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

void ChangeLogLevel(LogLevel min) { g_min.store(min, std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) { return level >= g_min.load(std::memory_order_relaxed); }

void WriteLogLine(LogLevel level, std::string_view text, const void* site) {
  RepeatedLines& repeated = Repeated();
  std::vector<LogRepeats::LeftOut> due;
  bool is_written = true;
  {
    const absl::Time now = MonotonicNow();
    std::lock_guard lock(repeated.mutex);
    due = repeated.repeats.TakeDue(now);
    if (site != nullptr) is_written = repeated.repeats.Admit(site, level, text, now);
  }
  for (const LogRepeats::LeftOut& lines : due) Write(lines.level, lines.Text());
  if (is_written) Write(level, text);
}

void TellLogRepeats() {
  RepeatedLines& repeated = Repeated();
  std::vector<LogRepeats::LeftOut> due;
  {
    std::lock_guard lock(repeated.mutex);
    due = repeated.repeats.TakeDue(absl::InfiniteFuture());
  }
  for (const LogRepeats::LeftOut& lines : due) Write(lines.level, lines.Text());
}

}  // namespace baton
