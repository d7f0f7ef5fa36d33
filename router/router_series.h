// Series of the cluster as the router sees it, on the router's page.
// Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kRouterMetrics[] = {
    {MetricKind::kHistogram, "baton_cancel_latency_seconds", "seconds", "model role",
     "Cancel of a request (or other early end) to the end of its last part at a worker."},
    {MetricKind::kCounter, "baton_cancels_overdue_total", "requests", "model role",
     "Ended requests whose workers never said that they let go."},
    {MetricKind::kGauge, "baton_cluster_kv_capacity_pages", "pages", "model role",
     "KV pages of all decode workers, as they report."},
    {MetricKind::kGauge, "baton_cluster_kv_free_pages", "pages", "model role",
     "KV pages of all decode workers that nobody holds, as they report."},
    {MetricKind::kHistogram, "baton_decode_plan_error_ratio", "ratio", "model role",
     "How far the predicted mean time between tokens was off, |actual / predicted - 1|."},
    {MetricKind::kTotal, "baton_failovers_total", "attempts", "model role cause",
     "Attempts that broke and were made anew, by cause."},
    {MetricKind::kGauge, "baton_kv_usage_ratio", "ratio", "model role",
     "Share of the KV pages in use."},
    {MetricKind::kGauge, "baton_links_broken", "links", "model role",
     "Links from worker to worker over which handoffs broke again and again, though both are "
     "here."},
    {MetricKind::kHistogram, "baton_plan_first_token_seconds", "seconds", "model role kind",
     "Time from the dispatch of a request to its first token, predicted and actual."},
    {MetricKind::kGauge, "baton_pool_desired_replicas", "workers", "model role",
     "Workers of a role that the load of the last minutes needs, by the costs that the workers "
     "have measured; for autoscalers. 0: not known, as in the first minute."},
    {MetricKind::kHistogram, "baton_prefill_chain_processes", "workers", "model role",
     "Workers that prefilled a prompt together."},
    {MetricKind::kHistogram, "baton_prefill_imbalance_ratio", "ratio", "model role",
     "Of a relay: computing of the rank with the most, over the mean of the ranks; 1 is even."},
    {MetricKind::kGauge, "baton_prefill_partition_tokens", "tokens", "model role slot",
     "Tokens of the slices of the last relay, by rank."},
    {MetricKind::kHistogram, "baton_prefill_plan_error_ratio", "ratio", "model role ranks",
     "How far the predicted time to the first token was off, |actual / predicted - 1|, by ranks."},
    {MetricKind::kTotal, "baton_prompts_followed_total", "waits", "model role",
     "Times a request waited for KV that another one computed, as choices of one prompt do."},
    {MetricKind::kGauge, "baton_queue_depth", "requests", "model role stage",
     "Requests waiting, by stage."},
    {MetricKind::kTotal, "baton_recompute_tokens_total", "tokens", "model role reason",
     "Tokens of prompts (and generated so far) computed by attempts after the first one, but for "
     "slices they went on with."},
    {MetricKind::kTotal, "baton_relay_ranks_replaced_total", "ranks", "model role",
     "Lost ranks of relays whose slice alone was dispatched anew."},
    {MetricKind::kTotal, "baton_relay_sinks_replaced_total", "workers", "model role",
     "Lost decode workers of relays whose slices were handed to another."},
    {MetricKind::kTotal, "baton_relays_total", "attempts", "model role push",
     "Attempts whose prompt was shared by several workers, by who hands its KV to the decode "
     "worker: all of them, the tail alone, or nobody."},
    {MetricKind::kGauge, "baton_requests_running", "requests", "model role",
     "Requests at the workers."},
    {MetricKind::kGauge, "baton_workers", "workers", "model role prefers",
     "Workers connected, by what they prefer."},
    {MetricKind::kGauge, "baton_workers_standing", "workers", "model role",
     "Workers whose engines stand still: they get nothing new until they turn again."},
};

consteval const MetricDeclaration& RouterMetric(std::string_view name) {
  return FindMetric(kRouterMetrics, name);
}

}  // namespace baton
