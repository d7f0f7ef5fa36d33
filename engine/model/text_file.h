// Reads small files whole: of a model folder, or named by a setting. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "common/status.h"

namespace baton {

// Returns the whole file. NotFound: no regular file, or not to be opened. InvalidArgument: longer
// than max_bytes. DataLoss: reading failed. Errors name the path; the caller adds what needs
// the file, or where the name comes from.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace baton
