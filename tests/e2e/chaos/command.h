// Runs a program to its end.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace baton {

// Error: the program cannot be started or did not exit with 0; its output is in the message.
absl::Status RunCommand(const std::vector<std::string>& args);

}  // namespace baton
