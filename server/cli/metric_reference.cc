#include "server/cli/metric_reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/process_series.h"
#include "kvtransfer/transfer_series.h"
#include "router/router_series.h"
#include "server/api/api_series.h"
#include "server/api/vllm_series.h"
#include "server/process/control_series.h"
#include "server/tracing/trace_series.h"
#include "worker/worker_series.h"

namespace baton {
namespace {

constexpr MetricSection kSections[] = {
    {"Requests",
     "Of clients' requests and connections, on the router's page. `slo` series judge requests by\n"
     "`server.slo_ttft` and `server.slo_itl`, as `baton bench load` does.",
     kApiMetrics},
    {"Cluster", "What the router knows of its workers and plans, on the router's page.",
     kRouterMetrics},
    {"Control port", "Of the port where workers join, on the router's page.", kControlMetrics},
    {"Workers", "Of a worker's engine and KV pool, on the worker's page.", kWorkerMetrics},
    {"KV transfer",
     "Of the KV that a worker sends and receives, on the worker's page; `link` is the address of "
     "the worker at the other end.",
     kTransferMetrics},
    {"Traces", "Of the spans that go to `tracing.endpoint`, on the router's page.", kTraceMetrics},
    {"Processes", "On every page.", kProcessMetrics},
    {"vLLM's names",
     "Under the names, labels and definitions of vLLM, so that dashboards, autoscalers and "
     "gateways\n"
     "that were made for it work unchanged; the bounds of histograms are a superset of vLLM's.\n"
     "`engine` is `0` on the router's page and the worker's name on a worker's page; no series is "
     "on\n"
     "both.",
     kVllmMetrics},
};

constexpr char kHead[] =
    R"(# Metrics

Written by `baton metrics --markdown` from the tables of the rooms, by which the series are fed as well (`*_series.h`,
`server/api/vllm_series.h` among them); a test holds this page equal to them.

The router answers `/metrics` on the port of the API, or on `server.metrics_port` where the API is public
([SECURITY.md](SECURITY.md)); each worker answers it on `cluster.metrics_port` (0 picks one, which the first lines of
its log tell). Prometheus reads both: `deploy/prometheus` has the configuration, recording rules and alerts,
`deploy/grafana` the dashboards, and [OPERATING.md](OPERATING.md) says what each alert means. Series exist from the
start of a process on, but for those of a link, a key, a rank or a status code, which exist from the first time on, and
`vllm:cache_config_info`, which exists from the first worker on.

The time to the first token is from the arrival of the last byte of a request to the moment its first token is handed to
the connection; gaps between tokens are taken at the same place, once, in the router.
)";

const char* TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kCounter:
    case MetricKind::kTotal:
      return "counter";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "";
}

std::string Cell(const char* text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

}  // namespace

std::span<const MetricSection> MetricSections() { return kSections; }

std::string MetricReference() {
  std::string text = kHead;
  for (const MetricSection& section : kSections) {
    absl::StrAppend(&text, "\n## ", section.title, "\n\n", section.about,
                    "\n\n| name | type | unit | labels | what it says |\n|---|---|---|---|---|\n");
    for (const MetricDeclaration& row : section.rows)
      absl::StrAppend(&text, "| `", row.name, "` | ", TypeOf(row.kind), " | ", row.unit, " | ",
                      absl::StrReplaceAll(row.labels, {{" ", ", "}}), " | ", Cell(row.help),
                      " |\n");
  }
  return text;
}

std::string MetricList() {
  std::string text;
  for (const MetricSection& section : kSections)
    for (const MetricDeclaration& row : section.rows)
      absl::StrAppend(&text, row.name, " ", TypeOf(row.kind), " ", row.labels, "\n");
  return text;
}

}  // namespace baton
