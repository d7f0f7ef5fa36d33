// Finds the RDMA device that has an address of this machine, as the kernel shows devices in
// /sys/class/infiniband. Any thread.
#pragma once

#include <netinet/in.h>

#include <string>

#include "common/status.h"

namespace baton {

// A port of an RDMA device, as UCX names it.
struct RdmaPort {
  std::string name;    // "mlx5_0:1"
  int gid_index = -1;  // RoCE v2 GID of the address; -1: UCX chooses (InfiniBand)
};

// The active port with a GID of this address (RoCE), or else the one that carries
// `network_device` (IPoIB). NotFound: no port has the address. FailedPrecondition: one has, and is
// not active. `root`: the folder of devices.
absl::StatusOr<RdmaPort> FindRdmaPort(const in_addr& host, const std::string& network_device,
                                      const std::string& root = "/sys/class/infiniband");

}  // namespace baton
