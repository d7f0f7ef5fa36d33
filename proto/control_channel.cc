#include "proto/control_channel.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "common/log.h"
#include "proto/control_codec.h"

namespace baton {

std::vector<ChannelArgument> ControlChannelArguments() {
  return {
      {GRPC_ARG_KEEPALIVE_TIME_MS, 2000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      // Without these settings gRPC stops pinging on a quiet stream, or takes the pings for abuse.
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500},
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(ControlLimits::kMessageBytes)},
  };
}

void QuietGrpc() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("gRPC: %s", line->message); });
}

bool IsLoopbackAddress(std::string_view address) {
  const std::string host(address.substr(0, address.rfind(':')));
  in_addr number{};
  const bool is_number = ::inet_pton(AF_INET, host.c_str(), &number) == 1;
  return host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

}  // namespace baton
