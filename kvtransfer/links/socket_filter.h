// A filter in the kernel for the sockets that UCX listens on: UCX 1.13 ends the process when a
// stranger sends it bytes that are not its protocol, so packets of other hosts must not reach it.
#pragma once

#include <netinet/in.h>

#include <vector>

#include "common/status.h"
#include "kvtransfer/protocol/networks.h"

namespace baton {

// Descriptors of this process that listen at this address, ascending.
std::vector<int> ListenersAt(const in_addr& host);
// From now on the socket, and each one accepted from it, gets packets of these networks and of
// `host` itself alone. Unavailable: the kernel refused.
absl::Status AdmitOnly(const Networks& networks, const in_addr& host, int socket);

}  // namespace baton
