// Files that hold a secret or prove who has one: API keys, keys of TLS, the cluster's key. One rule
// for all: a file is ours or root's, its group may read it at most (a Secret of Kubernetes with
// fsGroup is 0440), and others may do nothing. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "common/status.h"

namespace baton {

// The text of such a file. PermissionDenied: it breaks the rule. NotFound: it cannot be read.
// InvalidArgument: it is no file, or longer than max_bytes. Errors begin with the path, say what to
// change and repeat nothing of the text.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t max_bytes);
// The rule. mode, owner: the file's; us: who runs this process.
absl::Status CheckSecretMode(const std::string& path, mode_t mode, uid_t owner, uid_t us);

}  // namespace baton
