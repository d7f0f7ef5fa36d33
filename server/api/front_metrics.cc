#include "server/api/front_metrics.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "router/router_series.h"
#include "server/api/api_series.h"
#include "server/api/request_series.h"
#include "server/api/vllm_series.h"

namespace baton {
namespace {

const char* OutcomeOf(int http_status, bool failed) {
  if (failed) return "internal";
  if (http_status < 400) return "ok";
  if (http_status == 499) return "canceled";
  if (http_status == 504) return "deadline";
  if (http_status == 429 || http_status == 503) return "overload";
  return http_status < 500 || http_status == 505 ? "client_error" : "internal";
}

std::vector<MetricRow<absl::Duration>> FirstTokenRows(const MetricLabels& vllm,
                                                      const MetricLabels& own) {
  return {
      {VllmMetric("vllm:time_to_first_token_seconds"), vllm, absl::ToDoubleSeconds, TtftBounds()},
      {ApiMetric("baton_time_to_first_token_seconds"), own, absl::ToDoubleSeconds, TtftBounds()},
  };
}

std::vector<MetricRow<EmitReleased>> ReleasedRows(const MetricLabels& labels) {
  return {
      {RouterMetric("baton_cancel_latency_seconds"), labels,
       [](const EmitReleased& released) { return absl::ToDoubleSeconds(released.after); },
       StageBounds()},
      {RouterMetric("baton_cancels_overdue_total"), labels, &EmitReleased::overdue},
  };
}

}  // namespace

std::vector<MetricRow<FrontMetrics::Tokens>> FrontMetrics::TokenRows(const MetricLabels& vllm,
                                                                     const MetricLabels& own) {
  const auto gaps = [](const Tokens& tokens) -> const HistogramCounts& { return tokens.gaps; };
  return {
      MetricRow<Tokens>::OfCounts(VllmMetric("vllm:inter_token_latency_seconds"), vllm, gaps,
                                  kTokenLatencyBounds),
      MetricRow<Tokens>::OfCounts(ApiMetric("baton_inter_token_latency_seconds"), own, gaps,
                                  kTokenLatencyBounds),
      {VllmMetric("vllm:generation_tokens_total"), vllm, &Tokens::n},
      {ApiMetric("baton_generated_tokens_total"), own, &Tokens::n},
  };
}

FrontMetrics::FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context)
    : registry_(registry),
      vllm_labels_({{"model_name", model}, {"engine", "0"}}),
      labels_({{"model", model}, {"role", "router"}}),
      started_(registry->Counter(ApiMetric("baton_requests_started_total"), labels_)),
      first_token_(registry, FirstTokenRows(vllm_labels_, labels_)),
      token_series_(registry, TokenRows(vllm_labels_, labels_)),
      finished_(registry, RequestRows(vllm_labels_, labels_, static_cast<double>(max_context))),
      released_(registry, ReleasedRows(labels_)),
      view_(registry, ViewRows(vllm_labels_, labels_)) {
  PlanError(1);
  // Series that alerts look at exist before their first increment, which rate() misses else.
  for (const char* endpoint : {"completions", "chat", "messages", "responses"}) {
    for (const bool stream : {false, true}) {
      for (const int status : {200, 429, 499, 500, 503, 504})
        Requests(endpoint, stream, status, false);
      Requests(endpoint, stream, 200, true);
    }
  }
}

CounterMetric& FrontMetrics::Requests(std::string_view endpoint, bool stream, int http_status,
                                      bool failed) {
  const auto found = requests_.find(std::tuple(endpoint, stream, http_status, failed));
  if (found != requests_.end()) return found->second;
  const CounterMetric counter =
      registry_->Counter(ApiMetric("baton_requests_total"),
                         With(labels_, {{"endpoint", std::string(endpoint)},
                                        {"stream", stream ? "true" : "false"},
                                        {"code", absl::StrCat(http_status)},
                                        {"outcome", OutcomeOf(http_status, failed)}}));
  return requests_.emplace(RequestLabels(endpoint, stream, http_status, failed), counter)
      .first->second;
}

// Series are bounded by the names that the file of keys has had.
void FrontMetrics::CountForKey(const FinishedRequest& request) {
  const MetricLabels labels = With(labels_, {{"key", std::string(request.key)}});
  registry_->Counter(ApiMetric("baton_key_requests_total"), labels).Add();
  const auto tokens = [&](const char* kind, int64_t n) {
    registry_->Counter(ApiMetric("baton_key_tokens_total"), With(labels, {{"kind", kind}}))
        .Add(static_cast<double>(n));
  };
  tokens("prompt", request.n_prompt);
  tokens("generated", request.n_tokens);
}

HistogramMetric& FrontMetrics::PlanError(size_t n_ranks) {
  const auto found = plan_errors_.find(n_ranks);
  if (found != plan_errors_.end()) return found->second;
  const HistogramMetric histogram =
      registry_->Histogram(RouterMetric("baton_prefill_plan_error_ratio"),
                           With(labels_, {{"ranks", absl::StrCat(n_ranks)}}), PlanErrorBounds());
  return plan_errors_.emplace(n_ranks, histogram).first->second;
}

GaugeMetric FrontMetrics::SliceTokens(size_t rank) {
  return registry_->Gauge(RouterMetric("baton_prefill_partition_tokens"),
                          With(labels_, {{"slot", absl::StrCat(rank)}}));
}

void FrontMetrics::OnFinished(const FinishedRequest& request) {
  Requests(request.endpoint, request.stream, request.http_status, request.failed).Add();
  if (!request.key.empty()) CountForKey(request);
  if (request.finish.empty()) return;
  finished_.Take(request);
  if (HasPlan(request)) ObservePlan(request.timeline);
}

void FrontMetrics::ObservePlan(const Timeline& timeline) {
  const size_t n_ranks = timeline.slices.size();
  PlanError(n_ranks).Observe(std::abs(absl::FDivDuration(timeline.took, timeline.predicted) - 1));
  for (size_t rank = 0; n_ranks > 1 && rank < n_ranks; ++rank) {
    SliceTokens(rank).Set(timeline.slices[rank]);
  }
}

void FrontMetrics::SetView(const FrontView& view) {
  token_series_.Take(tokens_);
  view_.Take(view);
  if (view.cluster.page_tokens == 0) return;
  registry_->Tell(
      VllmMetric("vllm:cache_config_info"),
      With(vllm_labels_, {{"block_size", absl::StrCat(view.cluster.page_tokens)},
                          {"num_gpu_blocks", absl::StrCat(view.cluster.kv_pages_total)}}));
}

}  // namespace baton
