#include "server/tracing/tracing_options.h"

#include <algorithm>
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
  const bool is_ipv6 = rest.starts_with('[');
  const size_t host_end = is_ipv6 ? rest.find(']') : std::min(rest.find(':'), rest.size());
  if (host_end == rest.npos) return error();
  address.host = rest.substr(is_ipv6, host_end - is_ipv6);
  rest.remove_prefix(host_end + is_ipv6);
  if (!rest.empty()) {
    int port = 0;
    if (rest[0] != ':' || !absl::SimpleAtoi(std::string(rest.substr(1)), &port) || port < 1 ||
        port > 65535)
      return error();
    address.port = absl::StrCat(port);
  }
  if (address.host.empty() || address.host.find_first_of(" \r\n@[]") != std::string::npos ||
      address.path.find_first_of(" \r\n?#") != std::string::npos)
    return error();
  return address;
}

}  // namespace baton
