// Series of the control port, where workers join, on the router's page. Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kControlMetrics[] = {
    {MetricKind::kGauge, "baton_cluster_certificate_expiry_timestamp_seconds", "seconds", "",
     "When the certificate of the control port expires, since 1970; 0: plain text."},
    {MetricKind::kCounter, "baton_workers_refused_total", "peers", "reason",
     "Peers of the control port that were refused, by reason."},
};

consteval const MetricDeclaration& ControlMetric(std::string_view name) {
  return FindMetric(kControlMetrics, name);
}

}  // namespace baton
