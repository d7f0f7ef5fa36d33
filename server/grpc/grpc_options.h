// Options of the server of gRPC. Plain data, set at the start of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/settings.h"
#include "common/status.h"
#include "server/http/tls_context.h"

namespace baton {

struct GrpcOptions {
  int port = 0;  // as the setting: 0 = there is no such server
  // The rest is what the settings of HTTP say, under the same names.
  std::string host = "127.0.0.1";
  TlsFiles tls;
  size_t max_body = 1 << 20;  // bytes of a request
  size_t max_unsent = 1 << 20;
  size_t max_header = 16 << 10;
  int max_calls = 10000;                  // under way; server.max_connections
  size_t max_waiting_bytes = 256u << 20;  // of requests that are being read, and that are not taken
  absl::Duration write_timeout = absl::Seconds(30);
  absl::Duration idle_timeout = absl::Seconds(620);  // of a connection without a call
};

// Declares server.grpc_port.
void DeclareGrpc(GrpcOptions* options, Settings* settings);

// InvalidArgument: gRPC would be served in plain text beyond this machine, or one of the two files
// that TLS needs is not named. The error names the settings to change.
absl::Status CheckGrpc(const GrpcOptions& options);

}  // namespace baton
