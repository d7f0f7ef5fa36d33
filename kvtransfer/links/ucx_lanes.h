// The transports that UCX really takes from an address of this machine, as it names them: asked of
// UCX, because which ones it finds depends on devices, drivers and rights. One thread.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "kvtransfer/protocol/transport.h"

namespace baton {

// As "tcp/eth0", "rc_mlx5/mlx5_0:1", each once, in the order of the lanes; of an endpoint between
// two workers of this process, with the settings of a KV link. InvalidArgument: no device of this
// machine has the address. Unavailable: UCX refused, or tells no lanes. NotFound,
// FailedPrecondition: what the transport needs is not here.
absl::StatusOr<std::vector<std::string>> UcxLanes(const std::string& host, KvTransport transport);

}  // namespace baton
