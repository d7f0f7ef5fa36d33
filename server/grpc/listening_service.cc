#include "server/grpc/listening_service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMaxStreams = 1024;          // calls at once on a connection
constexpr int kReflectionThreads = 8;      // reflection alone is a service that holds a thread
constexpr size_t kQuotaBeside = 64 << 20;  // bytes of gRPC's buffers beside requests

// Keeps reflection alone of what libraries add to every server of the process.
class ReflectionAlone : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Server>> ListenFor(
    const GrpcOptions& options, grpc::Service* service,
    const std::shared_ptr<grpc::ServerCredentials>& credentials, int* port) {
  const bool is_v6 = options.host.find(':') != std::string::npos;
  const std::string address =
      absl::StrCat(is_v6 ? "[" : "", options.host, is_v6 ? "]:" : ":", options.port);
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<ReflectionAlone>());
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_ALLOW_REUSEPORT, 0},  // a taken port is an error, not shared
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, std::min(options.max_calls, kMaxStreams)},
      {GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(options.max_header)},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS,
       static_cast<int>(absl::ToInt64Milliseconds(options.idle_timeout))},
      // Finds clients that went away without a word. Their own pings may come as often.
      {GRPC_ARG_KEEPALIVE_TIME_MS, 20000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000},
  };
  for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_body));
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  // Bounds bodies that come in and are never finished.
  builder.SetResourceQuota(grpc::ResourceQuota("grpc")
                               .Resize(options.max_waiting_bytes + kQuotaBeside)
                               .SetMaxThreads(kReflectionThreads));
  builder.AddListeningPort(address, credentials, port);
  builder.RegisterService(service);
  grpc::EnableDefaultHealthCheckService(true);  // of this server alone
  auto server = builder.BuildAndStart();
  grpc::EnableDefaultHealthCheckService(false);
  if (server == nullptr || *port == 0)
    return absl::UnavailableError(
        absl::StrCat("cannot serve gRPC on ", address, ": is the port taken (server.grpc_port)?",
                     options.tls.any()
                         ? " Are server.tls_cert and server.tls_key PEM files that belong together?"
                         : ""));
  return server;
}

}  // namespace baton
