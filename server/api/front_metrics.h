// Metrics of the router process: family A under vLLM's names (vllm_series.h), family B under our
// own (api_series.h, router/router_series.h). What a token costs here is one count among the bounds
// of a histogram; series are made of the counts when somebody reads them. Front thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/time/time.h"
#include "common/histogram_counts.h"
#include "common/metric_table.h"
#include "router/router_messages.h"
#include "server/api/finished_request.h"
#include "server/api/view_series.h"

namespace baton {

class FrontMetrics {
 public:
  FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context);

  void OnStarted() { started_.Add(); }  // accepted by the router; OnFinished will come
  void OnReleased(const EmitReleased& released) { released_.Take(released); }
  void OnFirstToken(absl::Duration ttft) { first_token_.Take(ttft); }  // of a request
  void OnNextToken(absl::Duration gap) {                               // of a choice
    tokens_.gaps.Observe(absl::ToDoubleSeconds(gap));
    ++tokens_.n;
  }
  void OnOtherToken() { ++tokens_.n; }  // the first one of a choice
  void OnFinished(const FinishedRequest& request);
  // A request that never became one for tokens. label: RouteLabel.
  void OnRefused(std::string_view label, int http_status) {
    Requests(label, false, http_status, false).Add();
  }
  // Brings all series up to date.
  void SetView(const FrontView& view);

 private:
  struct Tokens {
    HistogramCounts gaps{.bounds = kTokenLatencyBounds};
    int64_t n = 0;
  };
  static std::vector<MetricRow<Tokens>> TokenRows(const MetricLabels& vllm,
                                                  const MetricLabels& own);

  // Series whose labels are known when something is to be counted. Those of each request are kept,
  // since finding one by its labels costs as much as 50 tokens.
  CounterMetric& Requests(std::string_view endpoint, bool stream, int http_status, bool failed);
  void CountForKey(const FinishedRequest& request);
  HistogramMetric& PlanError(size_t n_ranks);
  GaugeMetric SliceTokens(size_t rank);
  void ObservePlan(const Timeline& timeline);

  MetricsRegistry* registry_;
  const MetricLabels vllm_labels_, labels_;
  using RequestLabels = std::tuple<std::string, bool, int, bool>;  // of Requests
  std::map<RequestLabels, CounterMetric, std::less<>> requests_;
  std::map<size_t, HistogramMetric> plan_errors_;  // by ranks
  CounterMetric started_;
  MetricTable<absl::Duration> first_token_;
  Tokens tokens_;
  MetricTable<Tokens> token_series_;
  MetricTable<FinishedRequest> finished_;  // of requests that ran
  MetricTable<EmitReleased> released_;
  MetricTable<FrontView> view_;
};

}  // namespace baton
