// The header of a request with an API key. Any thread.
#pragma once

#include <map>
#include <string>

#include "common/status.h"

namespace baton {

// key_file: its first word is the key; empty: no header. NotFound: it cannot be read, or is empty;
// the error names --key-file and the scope that is needed.
absl::StatusOr<std::map<std::string, std::string>> KeyHeader(const std::string& key_file);

}  // namespace baton
