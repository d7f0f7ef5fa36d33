// Options that say who may use the HTTP API. Plain data, set at the start of the process.
#pragma once

#include <string>
#include <vector>

#include "common/settings.h"
#include "common/status.h"
#include "server/access/key_file.h"

namespace baton {

struct AccessOptions {
  std::string api_key_file;            // empty: no keys
  bool allow_unauthenticated = false;  // on addresses that others reach, too
  std::string allowed_hosts;           // names beside localhost, with commas; "*": any
};

// Declares the settings server.* of access.
void DeclareAccess(AccessOptions* options, Settings* settings);

// The keys of the file; none without one. host: as bound. FailedPrecondition: others would reach a
// server without keys. InvalidArgument: the host is none. Else errors of ReadKeyFile.
absl::StatusOr<std::vector<KeyEntry>> ReadAccess(const AccessOptions& options,
                                                 const std::string& host);

// Whether only this machine reaches what is bound to `host`, an address or a name; it may ask a
// name server and wait for it. InvalidArgument: it is neither.
absl::StatusOr<bool> IsLoopback(const std::string& host);

}  // namespace baton
