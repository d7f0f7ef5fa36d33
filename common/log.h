// One-line logger to stderr: `2026-01-02T03:04:05.678Z info decode  handoff committed pages 17`.
// Lower case, value after word. error: someone must act; warn: degraded; info: life of the process
// and one line per request; debug: details. Never prompts, keys or tokens' text.
// Any thread; a line is written with one write(2). Of warnings and errors of one place in the code
// 20 are written in 10 s; the others are counted, and one line tells of them (log_repeats.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace baton {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Called once at the start of a process, before other threads start. min: the lowest level written;
// without this call kInfo. process_name: the word for this process in every line (router, prefill0,
// ...), copied, cut to 31 bytes.
void SetLog(LogLevel min, std::string_view process_name);
bool LogEnabled(LogLevel level);
// Writes a line whatever `min` is. text: one line, without its end. A line that cannot be written
// is lost. site: the place in the code whose repeats are counted; null: each line is written.
void WriteLogLine(LogLevel level, std::string_view text, const void* site = nullptr);
// Tells how often lines were left out, also of the last 10 s. At the end of a process.
void TellLogRepeats();

template <typename... Args>
void Log(LogLevel level, const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(level)) WriteLogLine(level, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogDebug(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kDebug))
    WriteLogLine(LogLevel::kDebug, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogInfo(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kInfo)) WriteLogLine(LogLevel::kInfo, absl::StrFormat(format, args...));
}
// The address that these return to, of their own code for each place, names the place.
template <typename... Args>
[[gnu::noinline]] void LogWarn(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kWarn))
    WriteLogLine(LogLevel::kWarn, absl::StrFormat(format, args...), __builtin_return_address(0));
}
template <typename... Args>
[[gnu::noinline]] void LogError(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kError))
    WriteLogLine(LogLevel::kError, absl::StrFormat(format, args...), __builtin_return_address(0));
}

}  // namespace baton
