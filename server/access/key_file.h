// The file of API keys, a line per key (docs/SECURITY.md):
//   name sha256 tenant scope[,scope...] [requests/s [tokens/min]]
// The file has no key, only what proves one. Errors name file and line and what to change, and
// repeat nothing of the line: somebody may have put a key there. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "server/access/key_digest.h"
#include "server/access/scope.h"

namespace baton {

inline constexpr size_t kMaxKeys = 4096;

struct KeyEntry {
  std::string name{};  // in metrics; up to 64 letters, digits and . _ -
  KeyDigest digest{};
  std::string tenant{};  // as name; keys of one tenant share what it has
  ScopeSet scopes = 0;
  double requests_per_second = 0;  // 0: no limit
  int64_t tokens_per_minute = 0;   // 0: no limit
};

// InvalidArgument: no key, or a wrong line. path: for errors.
absl::StatusOr<std::vector<KeyEntry>> ParseKeyFile(std::string_view text, const std::string& path);
// Errors of ParseKeyFile and of ReadSecretFile (common/secret_file.h).
absl::StatusOr<std::vector<KeyEntry>> ReadKeyFile(const std::string& path);

std::string KeyLine(const KeyEntry& entry);  // as ParseKeyFile reads it, without a line feed
bool IsKeyName(std::string_view name);       // also of a tenant
// The scopes of a list such as inference,metrics; 0: it is none.
ScopeSet ScopesOf(std::string_view list);

}  // namespace baton
