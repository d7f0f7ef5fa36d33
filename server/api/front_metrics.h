// Metrics of the router process: family A under vLLM's names, family B under our own. Front thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/metric_table.h"
#include "router/router.h"

namespace baton {

struct FinishedRequest {
  std::string_view endpoint;  // GenerationApi::name
  bool stream = false;
  int http_status = 200;    // 499: the client went away
  std::string_view finish;  // stop, length, abort, error; empty: refused before it ran
  int64_t n_prompt = 0, n_tokens = 0, max_tokens = 0;
  absl::Duration text_time, total;
  Timeline timeline;
};

class FrontMetrics {
 public:
  struct View {
    const ClusterView& cluster;
    bool is_ready;
  };

  FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context,
               const std::string& version);

  void OnStarted() { started_.Add(); }  // accepted by the router; OnFinished will come
  void OnReleased(const EmitReleased& released) { released_.Take(released); }
  void OnFirstToken(absl::Duration ttft) { first_token_.Take(ttft); }
  void OnNextToken(absl::Duration gap) { next_token_.Take(gap); }
  void OnFinished(const FinishedRequest& request);
  void SetView(const ClusterView& view, bool is_ready) { view_.Take({view, is_ready}); }

 private:
  // Series whose labels are known when something is to be counted.
  CounterMetric Requests(std::string_view endpoint, bool stream, int http_status);
  HistogramMetric PlanError(size_t n_ranks);
  GaugeMetric SliceTokens(size_t rank);
  void ObservePlan(const Timeline& timeline);

  MetricsRegistry* registry_;
  const MetricLabels vllm_labels_, labels_;
  CounterMetric started_;
  MetricTable<absl::Duration> first_token_, next_token_;
  MetricTable<FinishedRequest> finished_;  // of requests that ran
  MetricTable<EmitReleased> released_;
  MetricTable<View> view_;
};

}  // namespace baton
