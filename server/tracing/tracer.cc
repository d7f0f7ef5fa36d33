#include "server/tracing/tracer.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "common/ids.h"
#include "common/log.h"
#include "server/tracing/trace_series.h"

namespace baton {

std::string NewSpanId() {
  uint64_t id = RandomId();
  while (id == 0) id = RandomId();
  return absl::StrFormat("%016x", id);
}

bool IsSampled(std::string_view trace_id, double sample) {
  constexpr size_t kDigits = 14;  // of 56 bits
  uint64_t last = 0;
  if (trace_id.size() < kDigits ||
      !absl::SimpleHexAtoi(std::string(trace_id.substr(trace_id.size() - kDigits)), &last))
    return false;
  return static_cast<double>(last) >= std::ldexp(1 - sample, 4 * kDigits);
}

absl::StatusOr<std::unique_ptr<Tracer>> Tracer::Start(const TracingOptions& options,
                                                      std::string head, const std::string& model,
                                                      MetricsRegistry* registry) {
  const auto counter = [&](const char* result) {
    return [metric = registry->Counter(TraceMetric("baton_trace_spans_total"),
                                       {{"model", model}, {"role", "router"}, {"result", result}})](
               int64_t n) mutable { metric.Add(static_cast<double>(n)); };
  };
  SpanExporter::Counts counts{.sent = counter("sent"), .dropped = counter("dropped")};
  if (options.endpoint.empty()) return nullptr;
  ASSIGN_OR_RETURN(CollectorAddress address, ReadCollectorAddress(options.endpoint));
  LogInfo("traces go to %s port %s, of %g of the requests", address.host, address.port,
          options.sample);
  return std::unique_ptr<Tracer>(
      new Tracer(options, std::move(address), std::move(head), std::move(counts)));
}

void Tracer::Begin(TraceContext* context) const {
  if (!context->is_known()) {
    std::string id = absl::StrFormat("%016x", RandomId()) + NewSpanId();
    const bool is_sampled = IsSampled(id, sample_.load(std::memory_order_relaxed));
    if (!is_sampled) return;
    *context = {.trace_id = std::move(id), .is_sampled = true};
  }
  if (context->is_sampled) context->span_id = NewSpanId();
}

}  // namespace baton
