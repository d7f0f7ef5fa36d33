#include "server/api/front_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

MetricLabels With(MetricLabels labels, const MetricLabels& more) {
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

std::vector<double> PlanErrorBounds() { return {.01, .02, .05, .1, .2, .3, .5, 1, 2, 5, 10}; }

const char* OutcomeOf(int http_status) {
  if (http_status < 400) return "ok";
  if (http_status == 499) return "canceled";
  if (http_status == 429 || http_status == 503) return "overload";
  return http_status < 500 ? "client_error" : "internal";
}

constexpr const char* kStages[] = {"text",        "route",        "prefill_queue", "prefill",
                                   "kv_transfer", "decode_queue", "decode"};
constexpr const char* kFailoverCauseNames[kFailoverCauses] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "slow_link"};
constexpr const char* kRecomputeReasonNames[kRecomputeReasons] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "slow_link", "preempted"};
constexpr char kRecomputedHelp[] =
    "Tokens of prompts (and generated so far) computed by attempts after the first one, but for "
    "slices they went on with.";
constexpr char kEndedHelp[] = "Requests that were started and have ended, by reason.";
constexpr char kSuccessHelp[] = "Requests that ran to their end, by reason.";
constexpr char kRequestsHelp[] = "Requests by endpoint, status and outcome.";
constexpr char kPlanErrorHelp[] =
    "How far the predicted time to the first token was off, |actual / predicted - 1|, by ranks.";
constexpr char kRelaysHelp[] =
    "Attempts whose prompt was shared by several workers, by who hands its KV to the decode "
    "worker: all of them, the tail alone, or nobody.";
constexpr char kSliceHelp[] = "Tokens of the slices of the last relay, by rank.";
constexpr char kStageHelp[] = "Time of a request in each part of its life.";

}  // namespace

FrontMetrics::FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context,
                           const std::string& version)
    : registry_(registry),
      vllm_labels_({{"model_name", model}, {"engine", "0"}}),
      labels_({{"model", model}, {"role", "router"}}),
      vllm_ttft_(registry->Histogram("vllm:time_to_first_token_seconds",
                                     "Arrival of a request to its first token.", vllm_labels_,
                                     TtftBounds())),
      vllm_itl_(registry->Histogram("vllm:inter_token_latency_seconds",
                                    "Gap between tokens of a request.", vllm_labels_,
                                    TokenLatencyBounds())),
      vllm_tpot_(registry->Histogram("vllm:request_time_per_output_token_seconds",
                                     "Mean gap between tokens of a request.", vllm_labels_,
                                     TokenLatencyBounds())),
      vllm_e2e_(registry->Histogram("vllm:e2e_request_latency_seconds",
                                    "Arrival of a request to its end.", vllm_labels_,
                                    RequestLatencyBounds())),
      vllm_queue_(registry->Histogram("vllm:request_queue_time_seconds",
                                      "Time a request waits before it is computed.", vllm_labels_,
                                      RequestLatencyBounds())),
      vllm_prefill_(registry->Histogram("vllm:request_prefill_time_seconds",
                                        "Time the prompt is computed.", vllm_labels_,
                                        RequestLatencyBounds())),
      vllm_decode_(registry->Histogram("vllm:request_decode_time_seconds",
                                       "First token to last token.", vllm_labels_,
                                       RequestLatencyBounds())),
      vllm_inference_(registry->Histogram("vllm:request_inference_time_seconds",
                                          "Start of computing to the last token.", vllm_labels_,
                                          RequestLatencyBounds())),
      vllm_prompt_size_(registry->Histogram("vllm:request_prompt_tokens", "Tokens of prompts.",
                                            vllm_labels_,
                                            TokenCountBounds(static_cast<double>(max_context)))),
      vllm_output_size_(registry->Histogram("vllm:request_generation_tokens", "Tokens generated.",
                                            vllm_labels_,
                                            TokenCountBounds(static_cast<double>(max_context)))),
      vllm_max_tokens_(registry->Histogram("vllm:request_params_max_tokens",
                                           "The limit of tokens requests set.", vllm_labels_,
                                           TokenCountBounds(static_cast<double>(max_context)))),
      vllm_prompt_tokens_(
          registry->Counter("vllm:prompt_tokens_total", "Prompt tokens computed.", vllm_labels_)),
      vllm_output_tokens_(
          registry->Counter("vllm:generation_tokens_total", "Tokens generated.", vllm_labels_)),
      vllm_running_(
          registry->Gauge("vllm:num_requests_running", "Requests at the workers.", vllm_labels_)),
      vllm_waiting_(registry->Gauge("vllm:num_requests_waiting", "Requests waiting for a worker.",
                                    vllm_labels_)),
      vllm_kv_usage_(registry->Gauge("vllm:kv_cache_usage_perc",
                                     "Share of the KV pages in use, 0 to 1.", vllm_labels_)),
      ttft_(registry->Histogram("baton_time_to_first_token_seconds",
                                "Arrival of a request to its first token's bytes.", labels_,
                                TtftBounds())),
      itl_(registry->Histogram("baton_inter_token_latency_seconds",
                               "Gap between tokens of a request.", labels_, TokenLatencyBounds())),
      tpot_(registry->Histogram("baton_time_per_output_token_seconds",
                                "Mean gap between tokens of a request.", labels_,
                                TokenLatencyBounds())),
      duration_(registry->Histogram("baton_request_duration_seconds",
                                    "Arrival of a request to its end.", labels_,
                                    RequestLatencyBounds())),
      cancel_latency_(registry->Histogram(
          "baton_cancel_latency_seconds",
          "Cancel of a request (or other early end) to the end of its last part at a worker.",
          labels_, StageBounds())),
      started_(registry->Counter("baton_requests_started_total",
                                 "Requests the router took; each ends once.", labels_)),
      overdue_(registry->Counter("baton_cancels_overdue_total",
                                 "Ended requests whose workers never said that they let go.",
                                 labels_)),
      ranks_(registry->Histogram("baton_prefill_chain_processes",
                                 "Workers that prefilled a prompt together.", labels_,
                                 {1, 2, 3, 4, 6, 8, 12, 16, 32, 64})),
      ranks_replaced_(registry->Counter(
          "baton_relay_ranks_replaced_total",
          "Lost ranks of relays whose slice alone was dispatched anew.", labels_)),
      sinks_replaced_(registry->Counter(
          "baton_relay_sinks_replaced_total",
          "Lost decode workers of relays whose slices were handed to another.", labels_)),
      running_(registry->Gauge("baton_requests_running", "Requests at the workers.", labels_)),
      waiting_(registry->Gauge("baton_queue_depth", "Requests waiting, by stage.",
                               With(labels_, {{"stage", "route"}}))),
      kv_usage_(registry->Gauge("baton_kv_usage_ratio", "Share of the KV pages in use.", labels_)),
      kv_total_(registry->Gauge("baton_kv_pages_total", "KV pages of all workers.", labels_)),
      kv_free_(registry->Gauge("baton_kv_pages_free", "KV pages nobody holds.", labels_)),
      ready_(registry->Gauge("baton_ready", "1 when the component can serve.",
                             With(labels_, {{"component", "cluster"}}))),
      prefill_workers_(registry->Gauge("baton_workers", "Workers connected, by what they prefer.",
                                       With(labels_, {{"prefers", "prefill"}}))),
      decode_workers_(registry->Gauge("baton_workers", "Workers connected, by what they prefer.",
                                      With(labels_, {{"prefers", "decode"}}))) {
  registry->Gauge("baton_build_info", "The build, always 1.", {{"version", version}}).Set(1);
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    registry->Counter("vllm:request_success_total", kSuccessHelp,
                      With(vllm_labels_, {{"finished_reason", reason}}));
    registry->Counter("baton_requests_ended_total", kEndedHelp,
                      With(labels_, {{"reason", reason}}));
  }
  for (const char* cause : kFailoverCauseNames) {
    failovers_.push_back(registry->Counter("baton_failovers_total",
                                           "Attempts that broke and were made anew, by cause.",
                                           With(labels_, {{"cause", cause}})));
  }
  for (int push = 0; push < kRelayPushes; ++push) {
    relays_.push_back(registry->Counter(
        "baton_relays_total", kRelaysHelp,
        With(labels_, {{"push", std::string(NameOf(static_cast<RelayPush>(push)))}})));
  }
  for (const char* reason : kRecomputeReasonNames)
    recomputed_.push_back(registry->Counter("baton_recompute_tokens_total", kRecomputedHelp,
                                            With(labels_, {{"reason", reason}})));
  for (const char* stage : kStages) {
    registry->Histogram("baton_request_stage_seconds", kStageHelp,
                        With(labels_, {{"stage", stage}}), StageBounds());
  }
  registry->Histogram("baton_prefill_plan_error_ratio", kPlanErrorHelp,
                      With(labels_, {{"ranks", "1"}}), PlanErrorBounds());
  for (const char* endpoint : {"completions", "chat"}) {
    for (const char* stream : {"false", "true"}) {
      registry->Counter(
          "baton_requests_total", kRequestsHelp,
          With(labels_,
               {{"endpoint", endpoint}, {"stream", stream}, {"code", "200"}, {"outcome", "ok"}}));
    }
  }
}

void FrontMetrics::OnReleased(const EmitReleased& released) {
  cancel_latency_.Observe(absl::ToDoubleSeconds(released.after));
  if (released.overdue) overdue_.Add();
}

void FrontMetrics::OnFirstToken(absl::Duration ttft) {
  vllm_ttft_.Observe(absl::ToDoubleSeconds(ttft));
  ttft_.Observe(absl::ToDoubleSeconds(ttft));
}

void FrontMetrics::OnNextToken(absl::Duration gap) {
  vllm_itl_.Observe(absl::ToDoubleSeconds(gap));
  itl_.Observe(absl::ToDoubleSeconds(gap));
}

void FrontMetrics::ObserveStages(const FinishedRequest& request) {
  const Timeline& timeline = request.timeline;
  const absl::Duration parts[] = {request.text_time, timeline.router_queue, timeline.prefill_queue,
                                  timeline.prefill,  timeline.transfer,     timeline.decode_queue,
                                  timeline.decode};
  for (size_t i = 0; i < std::size(parts); ++i) {
    registry_
        ->Histogram("baton_request_stage_seconds", kStageHelp,
                    With(labels_, {{"stage", kStages[i]}}), StageBounds())
        .Observe(absl::ToDoubleSeconds(parts[i]));
  }
  const absl::Duration queue = timeline.router_queue + timeline.prefill_queue;
  const absl::Duration after_first = timeline.total - timeline.ttft;
  vllm_queue_.Observe(absl::ToDoubleSeconds(queue));
  vllm_prefill_.Observe(absl::ToDoubleSeconds(timeline.prefill));
  vllm_decode_.Observe(absl::ToDoubleSeconds(after_first));
  vllm_inference_.Observe(absl::ToDoubleSeconds(timeline.total - queue));
  if (request.n_tokens > 1) {
    const double tpot =
        absl::ToDoubleSeconds(after_first) / static_cast<double>(request.n_tokens - 1);
    vllm_tpot_.Observe(tpot);
    tpot_.Observe(tpot);
  }
}

// Of requests whose last attempt brought a token.
void FrontMetrics::ObservePlan(const Timeline& timeline) {
  if (timeline.took <= absl::ZeroDuration() || timeline.predicted <= absl::ZeroDuration()) return;
  const size_t n_ranks = timeline.slices.size();
  ranks_.Observe(static_cast<double>(n_ranks));
  registry_
      ->Histogram("baton_prefill_plan_error_ratio", kPlanErrorHelp,
                  With(labels_, {{"ranks", absl::StrCat(n_ranks)}}), PlanErrorBounds())
      .Observe(std::abs(absl::FDivDuration(timeline.took, timeline.predicted) - 1));
  for (size_t slot = 0; n_ranks > 1 && slot < n_ranks; ++slot) {
    registry_
        ->Gauge("baton_prefill_partition_tokens", kSliceHelp,
                With(labels_, {{"slot", absl::StrCat(slot)}}))
        .Set(timeline.slices[slot]);
  }
}

void FrontMetrics::OnFinished(const FinishedRequest& request) {
  registry_
      ->Counter("baton_requests_total", kRequestsHelp,
                With(labels_, {{"endpoint", std::string(request.endpoint)},
                               {"stream", request.stream ? "true" : "false"},
                               {"code", absl::StrCat(request.http_status)},
                               {"outcome", OutcomeOf(request.http_status)}}))
      .Add();
  if (request.finish.empty()) return;
  registry_
      ->Counter("vllm:request_success_total", kSuccessHelp,
                With(vllm_labels_, {{"finished_reason", std::string(request.finish)}}))
      .Add();
  registry_
      ->Counter("baton_requests_ended_total", kEndedHelp,
                With(labels_, {{"reason", std::string(request.finish)}}))
      .Add();
  duration_.Observe(absl::ToDoubleSeconds(request.total));
  vllm_e2e_.Observe(absl::ToDoubleSeconds(request.total));
  vllm_prompt_tokens_.Add(static_cast<double>(request.n_prompt));
  vllm_output_tokens_.Add(static_cast<double>(request.n_tokens));
  vllm_prompt_size_.Observe(static_cast<double>(request.n_prompt));
  vllm_output_size_.Observe(static_cast<double>(request.n_tokens));
  vllm_max_tokens_.Observe(static_cast<double>(request.max_tokens));
  if (request.n_tokens > 0) {
    ObserveStages(request);
    ObservePlan(request.timeline);
  }
}

void FrontMetrics::SetView(const ClusterView& view, bool is_ready) {
  const int64_t total = view.kv_pages_total, free = view.kv_pages_free;
  const double usage =
      total > 0 ? static_cast<double>(total - free) / static_cast<double>(total) : 0;
  for (size_t i = 0; i < failovers_.size(); ++i)
    failovers_[i].Add(static_cast<double>(view.failovers[i] - reported_failovers_[i]));
  reported_failovers_ = view.failovers;
  for (size_t i = 0; i < relays_.size(); ++i)
    relays_[i].Add(static_cast<double>(view.relays_by_push[i] - reported_relays_[i]));
  reported_relays_ = view.relays_by_push;
  ranks_replaced_.Add(static_cast<double>(view.ranks_replaced - reported_ranks_replaced_));
  reported_ranks_replaced_ = view.ranks_replaced;
  sinks_replaced_.Add(static_cast<double>(view.sinks_replaced - reported_sinks_replaced_));
  reported_sinks_replaced_ = view.sinks_replaced;
  for (size_t i = 0; i < recomputed_.size(); ++i)
    recomputed_[i].Add(static_cast<double>(view.recomputed_tokens[i] - reported_recomputed_[i]));
  reported_recomputed_ = view.recomputed_tokens;
  vllm_running_.Set(view.running);
  vllm_waiting_.Set(view.waiting);
  vllm_kv_usage_.Set(usage);
  running_.Set(view.running);
  waiting_.Set(view.waiting);
  kv_usage_.Set(usage);
  kv_free_.Set(static_cast<double>(free));
  kv_total_.Set(static_cast<double>(total));
  ready_.Set(is_ready ? 1 : 0);
  prefill_workers_.Set(view.prefill_workers);
  decode_workers_.Set(view.decode_workers);
}

}  // namespace baton
