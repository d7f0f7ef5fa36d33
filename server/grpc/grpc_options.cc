#include "server/grpc/grpc_options.h"

#include "absl/strings/str_cat.h"
#include "proto/control_channel.h"

namespace baton {

void DeclareGrpc(GrpcOptions* options, Settings* settings) {
  settings->Int("server.grpc_port", &options->port, 0, 65535,
                "port of the gRPC API, on server.host; 0 = off");
}

absl::Status CheckGrpc(const GrpcOptions& options) {
  if (options.tls.any() && (options.tls.cert.empty() || options.tls.key.empty()))
    return absl::InvalidArgumentError(
        "gRPC with TLS needs a certificate and its key: set both server.tls_cert and "
        "server.tls_key");
  if (options.tls.any() || IsLoopbackAddress(absl::StrCat(options.host, ":0")) ||
      options.host == "::1")
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "gRPC on ", options.host,
      " would travel in plain text to other machines: set "
      "server.tls_cert and server.tls_key, or serve this machine alone (server.host 127.0.0.1), or "
      "no gRPC (server.grpc_port 0)"));
}

}  // namespace baton
