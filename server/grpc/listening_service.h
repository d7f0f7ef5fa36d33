// How a service of gRPC listens: address, TLS, bounds of connections, with health and reflection
// beside the service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "common/status.h"
#include "server/grpc/grpc_options.h"

namespace baton {

// *port: the one that is bound; the option 0 picks one. InvalidArgument: as CheckGrpc, or a file of
// TLS cannot be read. Unavailable: the address cannot be bound; errors name it. The service must
// outlive the server.
absl::StatusOr<std::unique_ptr<grpc::Server>> ListenFor(const GrpcOptions& options,
                                                        grpc::Service* service, int* port);

}  // namespace baton
