// `baton bench transfer`: handoffs between two Transfers of this process over UCX at one address of
// this machine, compared with two plain TCP sockets in the same run. Each end has its own link
// thread, so two cores work; every byte is checksummed at both ends and verified once more at the
// end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"
#include "kvtransfer/protocol/transport.h"

namespace baton {

struct TransferBenchOptions {
  double seconds = 2;                 // per measurement
  int64_t handoff_bytes = 256 << 20;  // far more than any cache; 16 MiB at least
  bool macs = false;                  // compare handoffs with MACs with those without
  bool json = false;
  std::string host = "127.0.0.1";  // an address of this machine
  KvTransport transport = KvTransport::kTcp;
};

// transfer_<cell>: GB/s of handoffs with cells of that size, and cpu_<cell>: CPU seconds
// of both ends together per GB (cpu_tcp: of the bare sockets). handoff_64k: milliseconds from OPEN
// to HandoffArrived of a small one, median. Of these two the lower is the better.
// With options.macs, instead: mac_<cell> and mac_10gbit_<cell>, GB/s of handoffs whose chunks have
// MACs, and as their limits those of the same handoffs without; the latter over links that carry 10
// Gbit/s.
absl::StatusOr<std::vector<KernelResult>> MeasureTransfer(const TransferBenchOptions& options);
// beside_tcp_<cell>: GB/s of the best handoff by options.transport, and as its limit that by tcp;
// gain_<cell>: how many times faster a handoff is than the one by tcp right before it, median; then
// the CPU seconds of both. Handoffs by the two take turns, so that a busy machine is busy for both.
absl::StatusOr<std::vector<KernelResult>> MeasureBesideTcp(const TransferBenchOptions& options);
// Runs one of the three: with macs, with a transport other than tcp, otherwise.
// Prints the table (and with json one object as the last line).
absl::Status RunTransferBench(const TransferBenchOptions& options);

}  // namespace baton
