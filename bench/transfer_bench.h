// `baton bench transfer`: handoffs between two Transfers of this process over UCX on the loopback
// device, compared with two plain TCP sockets in the same run. Each end has its own link thread, so
// two cores work; every byte is checksummed at both ends and verified once more at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"

namespace baton {

struct TransferBenchOptions {
  double seconds = 2;                 // per measurement
  int64_t handoff_bytes = 256 << 20;  // far more than any cache; 16 MiB at least
  bool macs = false;                  // compare handoffs with MACs with those without
  bool json = false;
};

// transfer_<cell>: GB/s of handoffs with cells of that size, and cpu_<cell>: CPU seconds
// of both ends together per GB (cpu_tcp: of the bare sockets). handoff_64k: milliseconds from OPEN
// to HandoffArrived of a small one, median. Of these two the lower is the better.
absl::StatusOr<std::vector<KernelResult>> MeasureTransfer(const TransferBenchOptions& options);
// With options.macs, instead: mac_<cell> and mac_10gbit_<cell>, GB/s of handoffs whose chunks have
// MACs, and as their limits those of the same handoffs without; the latter over links that carry 10
// Gbit/s.
// Prints the table (and with json one object as the last line).
absl::Status RunTransferBench(const TransferBenchOptions& options);

}  // namespace baton
