// Where the routers of a cluster are, as `cluster.router` says: addresses host:port or unix:PATH,
// with commas between them. A host may be a name, which stands for all addresses that the resolver
// knows of it: in Kubernetes a headless service, for each of its pods. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace baton {

// InvalidArgument: an entry is neither HOST:PORT nor unix:PATH, or there is none.
absl::StatusOr<std::vector<std::string>> ParseRouterAddresses(std::string_view text);

// True if the host of host:port is a name and no number.
bool IsNamedAddress(std::string_view address);

// Asks the system's resolver, which may take seconds where no name server answers. Returns the
// addresses of host:port as numbers, each once, in ascending order. Unavailable: the name is not
// known, now.
absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address);

}  // namespace baton
