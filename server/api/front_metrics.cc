#include "server/api/front_metrics.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using enum MetricKind;
using Request = FinishedRequest;
using View = FrontMetrics::View;

std::vector<double> PlanErrorBounds() {
  return {.01, .02, .05, .075, .1, .15, .2, .25, .3, .4, .5, .75, 1, 2, 5, 10};
}

const char* OutcomeOf(int http_status, bool failed) {
  if (failed) return "internal";
  if (http_status < 400) return "ok";
  if (http_status == 499) return "canceled";
  if (http_status == 504) return "deadline";
  if (http_status == 429 || http_status == 503) return "overload";
  return http_status < 500 || http_status == 505 ? "client_error" : "internal";
}

constexpr const char* kFailoverCauseNames[kFailoverCauses] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "late"};
constexpr const char* kRecomputeReasonNames[kRecomputeReasons] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "late", "preempted"};

// --- values -------------------------------------------------------------------------------------

// Seconds of a part of a request's life. Nothing for requests without a token.
MetricRow<Request>::Value Seconds(absl::Duration (*part)(const Request&)) {
  return [part](const Request& request) -> std::optional<double> {
    if (request.n_tokens <= 0) return std::nullopt;
    return absl::ToDoubleSeconds(part(request));
  };
}

absl::Duration Queued(const Request& request) {
  return request.timeline.router_queue + request.timeline.prefill_queue;
}

// Belongs to the choice that ended last, as the timeline does.
absl::Duration AfterFirstToken(const Request& request) {
  return request.timeline.total - request.timeline.ttft;
}

std::optional<double> SecondsPerToken(const Request& request) {
  if (request.n_last_tokens <= 1) return std::nullopt;
  return absl::ToDoubleSeconds(AfterFirstToken(request)) /
         static_cast<double>(request.n_last_tokens - 1);
}

MetricRow<Request>::Value EndedBy(std::string_view reason) {
  return [reason](const Request& request) -> std::optional<double> {
    if (request.finish != reason) return std::nullopt;
    return 1;
  };
}

// Whether the attempt that ran last had a plan and brought a token.
bool HasPlan(const Request& request) {
  const Timeline& timeline = request.timeline;
  return request.n_tokens > 0 && timeline.took > absl::ZeroDuration() &&
         timeline.predicted > absl::ZeroDuration();
}

// Only for a request that kept its first workers: the time between its tokens is that of the plan.
std::optional<double> GapError(const Request& request) {
  const std::optional<double> gap_seconds = SecondsPerToken(request);
  const Timeline& timeline = request.timeline;
  if (!gap_seconds || timeline.attempts > 1 || timeline.predicted_gap <= absl::ZeroDuration())
    return std::nullopt;
  return std::abs(*gap_seconds / absl::ToDoubleSeconds(timeline.predicted_gap) - 1);
}

std::optional<double> Ranks(const Request& request) {
  if (!HasPlan(request)) return std::nullopt;
  return static_cast<double>(request.timeline.slices.size());
}

double KvUsage(const View& view) {
  const int64_t total = view.cluster.kv_pages_total, free = view.cluster.kv_pages_free;
  return total > 0 ? static_cast<double>(total - free) / static_cast<double>(total) : 0;
}

// --- rows ---------------------------------------------------------------------------------------

std::vector<MetricRow<absl::Duration>> FirstTokenRows(const MetricLabels& vllm,
                                                      const MetricLabels& own) {
  return {
      {kHistogram, "vllm:time_to_first_token_seconds", "Arrival of a request to its first token.",
       vllm, absl::ToDoubleSeconds, TtftBounds()},
      {kHistogram, "baton_time_to_first_token_seconds",
       "Arrival of a request to its first token's bytes.", own, absl::ToDoubleSeconds,
       TtftBounds()},
  };
}

std::vector<MetricRow<absl::Duration>> NextTokenRows(const MetricLabels& vllm,
                                                     const MetricLabels& own) {
  return {
      {kHistogram, "vllm:inter_token_latency_seconds", "Gap between tokens of a request.", vllm,
       absl::ToDoubleSeconds, TokenLatencyBounds()},
      {kHistogram, "baton_inter_token_latency_seconds", "Gap between tokens of a request.", own,
       absl::ToDoubleSeconds, TokenLatencyBounds()},
  };
}

std::vector<MetricRow<Request>> VllmRows(const MetricLabels& labels, double max_context) {
  const auto total = [](const Request& request) { return absl::ToDoubleSeconds(request.total); };
  std::vector<MetricRow<Request>> rows = {
      {kHistogram, "vllm:request_time_per_output_token_seconds",
       "Mean gap between tokens of a request.", labels, SecondsPerToken, TokenLatencyBounds()},
      {kHistogram, "vllm:e2e_request_latency_seconds", "Arrival of a request to its end.", labels,
       total, RequestLatencyBounds()},
      {kHistogram, "vllm:request_queue_time_seconds", "Time a request waits before it is computed.",
       labels, Seconds(Queued), RequestLatencyBounds()},
      {kHistogram, "vllm:request_prefill_time_seconds", "Time the prompt is computed.", labels,
       Seconds([](const Request& request) { return request.timeline.prefill; }),
       RequestLatencyBounds()},
      {kHistogram, "vllm:request_decode_time_seconds", "First token to last token.", labels,
       Seconds(AfterFirstToken), RequestLatencyBounds()},
      {kHistogram, "vllm:request_inference_time_seconds", "Start of computing to the last token.",
       labels,
       Seconds([](const Request& request) { return request.timeline.total - Queued(request); }),
       RequestLatencyBounds()},
      {kHistogram, "vllm:request_prompt_tokens", "Tokens of prompts.", labels, &Request::n_prompt,
       TokenCountBounds(max_context)},
      {kHistogram, "vllm:request_generation_tokens", "Tokens generated.", labels,
       &Request::n_tokens, TokenCountBounds(max_context)},
      {kHistogram, "vllm:request_params_max_tokens", "The limit of tokens requests set.", labels,
       &Request::max_tokens, TokenCountBounds(max_context)},
      {kCounter, "vllm:prompt_tokens_total", "Prompt tokens computed.", labels, &Request::n_prompt},
      {kCounter, "vllm:generation_tokens_total", "Tokens generated.", labels, &Request::n_tokens},
  };
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    rows.push_back({kCounter, "vllm:request_success_total",
                    "Requests that ran to their end, by reason.",
                    With(labels, {{"finished_reason", reason}}), EndedBy(reason)});
  }
  return rows;
}

std::vector<MetricRow<Request>> OwnRows(const MetricLabels& labels) {
  const auto total = [](const Request& request) { return absl::ToDoubleSeconds(request.total); };
  std::vector<MetricRow<Request>> rows = {
      {kHistogram, "baton_time_per_output_token_seconds", "Mean gap between tokens of a request.",
       labels, SecondsPerToken, TokenLatencyBounds()},
      {kHistogram, "baton_request_duration_seconds", "Arrival of a request to its end.", labels,
       total, RequestLatencyBounds()},
      {kHistogram, "baton_decode_plan_error_ratio",
       "How far the predicted mean time between tokens was off, |actual / predicted - 1|.", labels,
       GapError, PlanErrorBounds()},
      {kHistogram,
       "baton_prefill_chain_processes",
       "Workers that prefilled a prompt together.",
       labels,
       Ranks,
       {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}},
  };
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    rows.push_back({kCounter, "baton_requests_ended_total",
                    "Requests that were started and have ended, by reason.",
                    With(labels, {{"reason", reason}}), EndedBy(reason)});
  }
  const struct {
    const char* name;
    absl::Duration (*part)(const Request&);
  } kStages[] = {
      {"text", [](const Request& request) { return request.text_time; }},
      {"route", [](const Request& request) { return request.timeline.router_queue; }},
      {"prefill_queue", [](const Request& request) { return request.timeline.prefill_queue; }},
      {"prefill", [](const Request& request) { return request.timeline.prefill; }},
      {"kv_transfer", [](const Request& request) { return request.timeline.transfer; }},
      {"decode_queue", [](const Request& request) { return request.timeline.decode_queue; }},
      {"decode", [](const Request& request) { return request.timeline.decode; }},
  };
  for (const auto& stage : kStages) {
    rows.push_back({kHistogram, "baton_request_stage_seconds",
                    "Time of a request in each part of its life.",
                    With(labels, {{"stage", stage.name}}), Seconds(stage.part), StageBounds()});
  }
  return rows;
}

template <typename Row>
std::vector<Row> Joined(std::vector<Row> rows, const std::vector<Row>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<MetricRow<EmitReleased>> ReleasedRows(const MetricLabels& labels) {
  return {
      {kHistogram, "baton_cancel_latency_seconds",
       "Cancel of a request (or other early end) to the end of its last part at a worker.", labels,
       [](const EmitReleased& released) { return absl::ToDoubleSeconds(released.after); },
       StageBounds()},
      {kCounter, "baton_cancels_overdue_total",
       "Ended requests whose workers never said that they let go.", labels, &EmitReleased::overdue},
  };
}

std::vector<MetricRow<View>> ViewRows(const MetricLabels& vllm, const MetricLabels& own) {
  std::vector<MetricRow<View>> rows = {
      {kGauge, "vllm:num_requests_running", "Requests at the workers.", vllm,
       [](const View& view) { return view.cluster.running; }},
      {kGauge, "vllm:num_requests_waiting", "Requests waiting for a worker.", vllm,
       [](const View& view) { return view.cluster.waiting; }},
      {kGauge, "vllm:kv_cache_usage_perc", "Share of the KV pages in use, 0 to 1.", vllm, KvUsage},
      {kGauge, "baton_requests_running", "Requests at the workers.", own,
       [](const View& view) { return view.cluster.running; }},
      {kGauge, "baton_queue_depth", "Requests waiting, by stage.", With(own, {{"stage", "route"}}),
       [](const View& view) { return view.cluster.waiting; }},
      {kGauge, "baton_queue_depth", "Requests waiting, by stage.", With(own, {{"stage", "text"}}),
       [](const View& view) { return view.text.jobs; }},
      {kGauge, "baton_text_queue_bytes", "Bytes of bodies that wait for a text thread.", own,
       [](const View& view) { return view.text.bytes; }},
      {kGauge, "baton_kv_usage_ratio", "Share of the KV pages in use.", own, KvUsage},
      {kGauge, "baton_kv_pages_total", "KV pages of all workers.", own,
       [](const View& view) { return view.cluster.kv_pages_total; }},
      {kGauge, "baton_kv_pages_free", "KV pages nobody holds.", own,
       [](const View& view) { return view.cluster.kv_pages_free; }},
      {kGauge, "baton_ready", "1 when the component can serve.",
       With(own, {{"component", "cluster"}}), [](const View& view) { return view.is_ready; }},
      {kGauge, "baton_workers", "Workers connected, by what they prefer.",
       With(own, {{"prefers", "prefill"}}),
       [](const View& view) { return view.cluster.prefill_workers; }},
      {kGauge, "baton_workers", "Workers connected, by what they prefer.",
       With(own, {{"prefers", "decode"}}),
       [](const View& view) { return view.cluster.decode_workers; }},
      {kGauge, "baton_workers_standing",
       "Workers whose engines stand still: they get nothing new until they turn again.", own,
       [](const View& view) { return view.cluster.standing_workers; }},
      {kTotal, "baton_relay_ranks_replaced_total",
       "Lost ranks of relays whose slice alone was dispatched anew.", own,
       [](const View& view) { return view.cluster.ranks_replaced; }},
      {kTotal, "baton_relay_sinks_replaced_total",
       "Lost decode workers of relays whose slices were handed to another.", own,
       [](const View& view) { return view.cluster.sinks_replaced; }},
      {kTotal, "baton_prompts_followed_total",
       "Times a request waited for KV that another one computed, as choices of one prompt do.", own,
       [](const View& view) { return view.cluster.followed; }},
      {kGauge, "baton_http_connections", "Connections of clients that are open.", own,
       [](const View& view) { return view.http.open; }},
      {kTotal, "baton_http_connections_refused_total",
       "Connections refused: the server (503), their address (503) or their key (429) had too "
       "many.",
       own, [](const View& view) { return view.http.refused; }},
      {kTotal, "baton_http_idle_closed_total", "Idle connections closed to make room for new ones.",
       own, [](const View& view) { return view.http.idle_closed; }},
      {kTotal, "baton_http_slow_readers_total",
       "Connections closed because their clients took answers too slowly.", own,
       [](const View& view) { return view.http.too_slow; }},
      {kGauge, "baton_http_incoming_bytes", "Bytes of requests that are not whole yet.", own,
       [](const View& view) { return view.http.incoming; }},
      {kTotal, "baton_http_incoming_refused_total",
       "Requests refused with 503: too many bytes were coming, of all or of their address.", own,
       [](const View& view) { return view.http.incoming_refused; }},
      {kGauge, "baton_http_unsent_bytes", "Bytes of answers that wait for their clients.", own,
       [](const View& view) { return view.http.unsent; }},
      {kTotal, "baton_http_unread_closed_total",
       "Slowest readers closed: too many bytes waited for all, or for their address.", own,
       [](const View& view) { return view.http.unread_closed; }},
      {kGauge, "baton_tls_handshakes", "TLS handshakes under way.", own,
       [](const View& view) { return view.http.shaking; }},
      {kTotal, "baton_tls_reloads_total", "Times certificate and key were read again.",
       With(own, {{"result", "ok"}}), [](const View& view) { return view.http.reloads; }},
      {kTotal, "baton_tls_reloads_total", "Times certificate and key were read again.",
       With(own, {{"result", "refused"}}),
       [](const View& view) { return view.http.reloads_refused; }},
      {kGauge, "baton_tls_certificate_expiry_seconds",
       "Seconds until the certificate that is served expires; 0: no TLS.", own,
       [](const View& view) {
         return absl::ToDoubleSeconds(view.http.certificate_left.value_or(absl::ZeroDuration()));
       }},
  };
  for (size_t kind = 0; kind < kTransportKinds; ++kind) {
    rows.push_back({kTotal, "baton_http_connections_total",
                    "Connections of clients taken, by what carries them.",
                    With(own, {{"transport", kTransportKindNames[kind]}}),
                    [kind](const View& view) { return view.http.opened[kind]; }});
  }
  for (size_t result = 0; result < kTlsResults; ++result) {
    rows.push_back({kTotal, "baton_tls_handshakes_total", "TLS handshakes that ended, and how.",
                    With(own, {{"result", std::string(NameOf(static_cast<TlsResult>(result)))}}),
                    [result](const View& view) { return view.http.handshakes[result]; }});
  }
  for (size_t cause = 0; cause < kFailoverCauses; ++cause) {
    rows.push_back({kTotal, "baton_failovers_total",
                    "Attempts that broke and were made anew, by cause.",
                    With(own, {{"cause", kFailoverCauseNames[cause]}}),
                    [cause](const View& view) { return view.cluster.failovers[cause]; }});
  }
  for (size_t push = 0; push < kRelayPushes; ++push) {
    rows.push_back({kTotal, "baton_relays_total",
                    "Attempts whose prompt was shared by several workers, by who hands its KV to "
                    "the decode worker: all of them, the tail alone, or nobody.",
                    With(own, {{"push", std::string(NameOf(static_cast<RelayPush>(push)))}}),
                    [push](const View& view) { return view.cluster.relays_by_push[push]; }});
  }
  for (size_t reason = 0; reason < kRecomputeReasons; ++reason) {
    rows.push_back({kTotal, "baton_recompute_tokens_total",
                    "Tokens of prompts (and generated so far) computed by attempts after the first "
                    "one, but for slices they went on with.",
                    With(own, {{"reason", kRecomputeReasonNames[reason]}}),
                    [reason](const View& view) { return view.cluster.recomputed_tokens[reason]; }});
  }
  return rows;
}

}  // namespace

std::string_view RecomputeReasonName(int reason) {
  return kRecomputeReasonNames[static_cast<size_t>(reason)];
}

FrontMetrics::FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context,
                           const std::string& version)
    : registry_(registry),
      vllm_labels_({{"model_name", model}, {"engine", "0"}}),
      labels_({{"model", model}, {"role", "router"}}),
      started_(registry->Counter("baton_requests_started_total",
                                 "Requests the router took; each ends once.", labels_)),
      first_token_(registry, FirstTokenRows(vllm_labels_, labels_)),
      next_token_(registry, NextTokenRows(vllm_labels_, labels_)),
      finished_(registry,
                Joined(VllmRows(vllm_labels_, static_cast<double>(max_context)), OwnRows(labels_))),
      released_(registry, ReleasedRows(labels_)),
      view_(registry, ViewRows(vllm_labels_, labels_)) {
  registry->Gauge("baton_build_info", "The build, always 1.", {{"version", version}}).Set(1);
  PlanError(1);
  for (const char* endpoint : {"completions", "chat", "messages"}) {
    for (const bool stream : {false, true}) Requests(endpoint, stream, 200, false);
  }
}

CounterMetric FrontMetrics::Requests(std::string_view endpoint, bool stream, int http_status,
                                     bool failed) {
  return registry_->Counter("baton_requests_total", "Requests by endpoint, status and outcome.",
                            With(labels_, {{"endpoint", std::string(endpoint)},
                                           {"stream", stream ? "true" : "false"},
                                           {"code", absl::StrCat(http_status)},
                                           {"outcome", OutcomeOf(http_status, failed)}}));
}

// Series are bounded by the names that the file of keys has had.
void FrontMetrics::CountForKey(const FinishedRequest& request) {
  const MetricLabels labels = With(labels_, {{"key", std::string(request.key)}});
  registry_
      ->Counter("baton_key_requests_total", "Requests for tokens, by the name of their key.",
                labels)
      .Add();
  const auto tokens = [&](const char* kind, int64_t n) {
    registry_
        ->Counter("baton_key_tokens_total", "Tokens of prompts and generated, by key.",
                  With(labels, {{"kind", kind}}))
        .Add(static_cast<double>(n));
  };
  tokens("prompt", request.n_prompt);
  tokens("generated", request.n_tokens);
}

HistogramMetric FrontMetrics::PlanError(size_t n_ranks) {
  return registry_->Histogram(
      "baton_prefill_plan_error_ratio",
      "How far the predicted time to the first token was off, |actual / predicted - 1|, by ranks.",
      With(labels_, {{"ranks", absl::StrCat(n_ranks)}}), PlanErrorBounds());
}

GaugeMetric FrontMetrics::SliceTokens(size_t rank) {
  return registry_->Gauge("baton_prefill_partition_tokens",
                          "Tokens of the slices of the last relay, by rank.",
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

}  // namespace baton
