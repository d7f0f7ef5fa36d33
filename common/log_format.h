// Forms of lines of the log: text, or as one JSON object each for programs that collect
// logs. Called once at the start of a process, with SetLog.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/log.h"

namespace baton {

enum class LogFormat { kText, kJson };

void SetLogFormat(LogFormat format);

// A line with its end. As JSON: time, level, process, message; of a message that begins with
// `request ID` or `request ID trace TRACE-SPAN` (RunningRequest::log_name) also request_id,
// trace_id and span_id.
std::string LogLine(LogFormat format, absl::Time time, LogLevel level, std::string_view process,
                    std::string_view text);

}  // namespace baton
