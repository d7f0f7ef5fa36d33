// Settings of traces, and the address of their collector. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "common/settings.h"
#include "common/status.h"

namespace baton {

struct TracingOptions {
  std::string endpoint;           // http://host:port of an OTLP/HTTP collector; empty: no traces
  double sample = 1;              // of requests without a traceparent: the share that is traced
  std::string service = "baton";  // service.name

  int64_t max_waiting = 4 << 20;              // bytes of spans; more are dropped
  absl::Duration pause = absl::Seconds(1);    // between batches
  absl::Duration timeout = absl::Seconds(2);  // of a batch
};

void DeclareTracing(TracingOptions* options, Settings* settings);

struct CollectorAddress {
  std::string host, port = "4318", path = "/v1/traces";
};
// InvalidArgument names tracing.endpoint and what it may be. A path is kept; without one spans go
// to /v1/traces, as OpenTelemetry has it.
absl::StatusOr<CollectorAddress> ReadCollectorAddress(const std::string& endpoint);

}  // namespace baton
