// How a service of gRPC listens: address, TLS, bounds of connections, with health and reflection
// beside the service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "common/status.h"
#include "server/grpc/grpc_options.h"

namespace baton {

// *port: the one that is bound; the option 0 picks one. Unavailable: the address cannot be bound;
// the error names it. The service must outlive the server.
absl::StatusOr<std::unique_ptr<grpc::Server>> ListenFor(
    const GrpcOptions& options, grpc::Service* service,
    const std::shared_ptr<grpc::ServerCredentials>& credentials, int* port);

}  // namespace baton
