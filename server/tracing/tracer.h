// Which requests are traced, and the way of their spans out. A request belongs to the trace that
// its traceparent names, and is traced if that says so; without one it begins a trace, which is
// sampled by its id, so that all that see the id decide alike. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/metrics.h"
#include "server/http/trace_context.h"
#include "server/tracing/span_exporter.h"
#include "server/tracing/tracing_options.h"

namespace baton {

// 16 hexadecimal digits, not all zero.
std::string NewSpanId();
// True if a trace with this id is among the share `sample` of all: by its last 56 bits, as
// OpenTelemetry's samplers of one probability decide.
bool IsSampled(std::string_view trace_id, double sample);

class Tracer {
 public:
  // Null: no traces are wanted. InvalidArgument: tracing.endpoint. head: as of SpanExporter. The
  // registry must outlive the tracer.
  static absl::StatusOr<std::unique_ptr<Tracer>> Start(const TracingOptions& options,
                                                       std::string head, const std::string& model,
                                                       MetricsRegistry* registry);

  // Gives a request its trace and, if it is traced, its span.
  void Begin(TraceContext* context) const;
  void SetSample(double sample) { sample_.store(sample, std::memory_order_relaxed); }
  void Send(SpanList spans) { exporter_.Add(std::move(spans)); }

 private:
  Tracer(const TracingOptions& options, CollectorAddress address, std::string head,
         SpanExporter::Counts counts)
      : sample_(options.sample),
        exporter_(options, std::move(address), std::move(head), std::move(counts)) {}

  std::atomic<double> sample_;
  SpanExporter exporter_;
};

}  // namespace baton
