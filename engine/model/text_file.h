// Reads small files whole: of a model folder, or named by a setting. Any thread.
#pragma once

#include <string>

#include "common/status.h"

namespace baton {

// Returns the whole file. Errors: not readable, not a regular file, longer than max_bytes. They
// name the file; the caller adds what needs it, or where the name comes from.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace baton
