// `baton bench transfer`: handoffs between two Transfers of this process over UCX on the loopback
// device, beside what two bare TCP sockets carry in the same run. Each end has its own link thread,
// so two cores work; every byte is checksummed at both ends and verified once more at the end.
#pragma once

#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"

namespace baton {

struct TransferBenchOptions {
  double seconds = 2;  // per measurement
  bool json = false;
};

// transfer_<cell>: GB/s of handoffs of 256 MiB with cells of that size, and cpu_<cell>: CPU seconds
// of both ends together per GB (cpu_tcp: of the bare sockets). handoff_64k: milliseconds from OPEN
// to HandoffArrived of a small one, median. Of these two the lower is the better.
absl::StatusOr<std::vector<KernelResult>> MeasureTransfer(const TransferBenchOptions& options);
// Prints the table (and with json one object as the last line).
absl::Status RunTransferBench(const TransferBenchOptions& options);

}  // namespace baton
