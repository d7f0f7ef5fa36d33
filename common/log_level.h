// The log's level as a setting names it, and its change in a running process.
#pragma once

#include <string_view>

#include "common/log.h"

namespace baton {

LogLevel LogLevelOf(std::string_view name);  // debug, info, warn, error; any other: kInfo
void ChangeLogLevel(LogLevel min);           // any thread; holds for lines from then on

}  // namespace baton
