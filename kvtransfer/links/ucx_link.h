// Link over UCX active messages: control messages eager, chunks by rendezvous, so that the receiver
// picks the destination before a byte moves. One context, one worker (UCS_THREAD_MODE_SINGLE), one
// listener; made, used and destroyed on one thread.
//
// UCX calls back only from Poll. Callbacks record events; Poll turns the records into LinkEvents.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/port_range.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "kvtransfer/protocol/transport.h"

namespace baton {

struct UcxLinkOptions {
  PortRange ports{};
  std::string allowed_cidrs = "0.0.0.0/0";  // Networks whose packets come in
  KvTransport transport = KvTransport::kTcp;
};

// Returns what a worker's settings ask for. InvalidArgument: the ports are no range.
absl::StatusOr<UcxLinkOptions> UcxLinkOptionsOf(const TransferOptions& options);

// Listens at a free port of the range (0: any). Host must be an address of this machine, not a
// wildcard: UCX is bound to that one network device, so that it stripes over no other.
// InvalidArgument: host is no IPv4 address of this machine. Unavailable: the ports are taken, or
// UCX refused. NotFound, FailedPrecondition: what the transport needs is not here.
absl::StatusOr<std::unique_ptr<Link>> MakeUcxLink(const std::string& host,
                                                  const UcxLinkOptions& options = {});

}  // namespace baton
