// UCX objects with owners, and the settings Baton runs UCX with. Included by ucx_*.cc only. Link
// thread; addresses: any thread.
#pragma once

#include <netinet/in.h>
#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/status.h"
#include "kvtransfer/protocol/port_range.h"
#include "kvtransfer/protocol/transport.h"

namespace baton {

struct UcxContextDelete {
  void operator()(ucp_context_h context) const { ucp_cleanup(context); }
};
struct UcxWorkerDelete {
  void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
};
struct UcxListenerDelete {
  void operator()(ucp_listener_h listener) const { ucp_listener_destroy(listener); }
};
using UcxContext = std::unique_ptr<std::remove_pointer_t<ucp_context_h>, UcxContextDelete>;
using UcxWorker = std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, UcxWorkerDelete>;
using UcxListener = std::unique_ptr<std::remove_pointer_t<ucp_listener_h>, UcxListenerDelete>;

// An Unavailable error: `what` failed with `status`.
absl::Status UcxError(std::string_view what, ucs_status_t status);

// Unavailable: fewer than two ports of the range are free at this host. UCX would look for one for
// ever.
absl::Status CheckPorts(sockaddr_in host, PortRange ports);
// Creates a context for this transport on the device that has the address `host`. Restores the
// signal handlers that UCX replaced in this process when it was loaded. Other ports than the
// listener's are of this range, too. InvalidArgument: no device of this machine has the address.
// Unavailable: UCX refused. NotFound, FailedPrecondition: what kRdma or kShm needs is not here.
absl::StatusOr<UcxContext> MakeUcxContext(const in_addr& host, PortRange ports,
                                          KvTransport transport);
// Creates a worker for one thread. The context must outlive the worker. Unavailable: UCX refused.
absl::StatusOr<UcxWorker> MakeUcxWorker(const UcxContext& context);
// Lets `callback` handle whole messages of this id; it gets `arg`. Unavailable: UCX refused.
absl::Status SetUcxHandler(const UcxWorker& worker, unsigned id, ucp_am_recv_callback_t callback,
                           void* arg);
// Listens at the address and the first port of the range that is free; 0: any. The worker must
// outlive the listener, or UCX complains. Unavailable: UCX refused, for example because every port
// is taken.
absl::StatusOr<UcxListener> MakeUcxListener(const UcxWorker& worker, sockaddr_in address,
                                            PortRange ports,
                                            const ucp_listener_conn_handler_t& handler);
// Names who asks for a connection, as host:port; empty: UCX does not know.
std::string ClientOf(ucp_conn_request_h request);
// The address with the port that was picked. Unavailable: UCX refused.
absl::StatusOr<std::string> AddressOf(const UcxListener& listener);

// "127.0.0.1:8000"; IPv4 addresses, as UCX 1.13's tcp transport speaks. InvalidArgument: anything
// else.
absl::StatusOr<sockaddr_in> ParseSocketAddress(const std::string& address);
std::string FormatSocketAddress(const sockaddr_in& address);

}  // namespace baton
