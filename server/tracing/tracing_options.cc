#include "server/tracing/tracing_options.h"

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {

void DeclareTracing(TracingOptions* options, Settings* settings) {
  settings->Text(
      "tracing.endpoint", &options->endpoint,
      "http://HOST:PORT of a collector of OpenTelemetry that takes OTLP over HTTP; empty "
      "= no traces");
  settings->Number("tracing.sample", &options->sample, 0, 1,
                   "share of requests that are traced, by their trace ids; a traceparent decides "
                   "for its own request");
  settings->Text("tracing.service", &options->service, "service.name of the spans");
}

absl::StatusOr<CollectorAddress> ReadCollectorAddress(const std::string& endpoint) {
  constexpr std::string_view kScheme = "http://";
  const auto error = [&] {
    return absl::InvalidArgumentError(absl::StrCat("tracing.endpoint is \"", endpoint,
                                                   "\", and must be like http://collector:4318"));
  };
  if (!endpoint.starts_with(kScheme)) return error();
  CollectorAddress address;
  std::string_view rest = std::string_view(endpoint).substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash != rest.npos && slash + 1 < rest.size()) address.path = rest.substr(slash);
  rest = rest.substr(0, slash);
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  std::string_view host = rest;
  if (colon != rest.npos && (bracket == rest.npos || colon > bracket)) {
    host = rest.substr(0, colon);
    address.port = rest.substr(colon + 1);
  }
  if (bracket != rest.npos) {  // of IPv6
    if (!host.starts_with('[') || !host.ends_with(']')) return error();
    host = host.substr(1, host.size() - 2);
  }
  int port = 0;
  if (!absl::SimpleAtoi(address.port, &port) || port < 1 || port > 65535) return error();
  if (host.empty() ||
      host.find_first_of(" \r\n@:/[]") != (bracket == rest.npos ? host.npos : host.find(':')))
    return error();
  if (address.path.find_first_of(" \r\n?#") != std::string::npos) return error();
  address.host = host;
  return address;
}

}  // namespace baton
