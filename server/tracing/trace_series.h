// Series of the spans that go to a collector, on the router's page. Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kTraceMetrics[] = {
    {MetricKind::kCounter, "baton_trace_spans_total", "spans", "model role result",
     "Spans of traced requests by what became of them: sent, or dropped because the collector did "
     "not take them and others waited."},
};

consteval const MetricDeclaration& TraceMetric(std::string_view name) {
  return FindMetric(kTraceMetrics, name);
}

}  // namespace baton
