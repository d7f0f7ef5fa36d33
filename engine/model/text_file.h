// Reads small files of a model folder. Any thread.
#pragma once

#include <string>

#include "common/status.h"

namespace baton {

// The whole file. Errors: not readable, not a regular file, longer than max_bytes.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace baton
