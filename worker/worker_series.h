// Series of a worker's engine and pool, on the worker's page.
// Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kWorkerMetrics[] = {
    {MetricKind::kTotal, "baton_cancellations_total", "parts", "model worker",
     "Parts of requests cancelled here."},
    {MetricKind::kTotal, "baton_decode_tokens_total", "tokens", "model worker", "Tokens decoded."},
    {MetricKind::kGauge, "baton_engine_turn_seconds", "seconds", "model worker",
     "Age of the turn under way; 0: it waits for work."},
    {MetricKind::kTotal, "baton_engine_turns_total", "turns", "model worker",
     "Turns of the engine's loop."},
    {MetricKind::kGauge, "baton_kv_free_pages", "pages", "model worker",
     "KV pages that nobody holds: in the pool, or lent to the transfer and not promised."},
    {MetricKind::kGauge, "baton_kv_capacity_pages", "pages", "model worker",
     "KV pages of this worker."},
    {MetricKind::kGauge, "baton_kv_pages", "pages", "model worker state",
     "KV pages by state: free, cached (free, and their KV can be reused), prefill (held by "
     "prompts), decode (by rows), lent (to the transfer, not promised), promised. A page that "
     "several hold counts in each of their states, less those in shared."},
    {MetricKind::kTotal, "baton_kv_pages_trimmed_total", "pages", "model worker",
     "KV pages that fell out of a window and were given back, whole or in part."},
    {MetricKind::kTotal, "baton_parts_ended_total", "parts", "model worker",
     "Parts of requests that ended here."},
    {MetricKind::kTotal, "baton_parts_failed_total", "parts", "model worker",
     "Parts of requests that failed here."},
    {MetricKind::kTotal, "baton_parts_orphaned_total", "parts", "model worker",
     "Parts of requests that ended here since their router was lost: its streams failed."},
    {MetricKind::kTotal, "baton_preemptions_total", "sequences", "model worker",
     "Requests that lost their KV pages to older ones and start anew."},
    {MetricKind::kTotal, "baton_prefill_reused_tokens_total", "tokens", "model worker",
     "Prompt tokens whose KV was reused."},
    {MetricKind::kTotal, "baton_prefill_tokens_total", "tokens", "model worker",
     "Prompt tokens computed."},
    {MetricKind::kTotal, "baton_slice_blocks_total", "blocks", "model worker",
     "Blocks of relays' slices computed: some rows in one layer."},
    {MetricKind::kTotal, "baton_slice_seconds_total", "seconds", "model worker",
     "Time inside blocks of relays' slices."},
    {MetricKind::kTotal, "baton_slice_wait_seconds_total", "seconds", "model worker",
     "Time in which a relay's slice waited for KV of the rank before."},
    {MetricKind::kHistogram, "baton_step_duration_seconds", "seconds", "model worker",
     "Time of an engine step, sampling among it."},
    {MetricKind::kTotal, "baton_step_seconds_total", "seconds", "model worker",
     "Time inside engine steps."},
    {MetricKind::kHistogram, "baton_step_tokens", "tokens", "model worker",
     "Tokens of an engine step: prompt tokens and one per row."},
    {MetricKind::kTotal, "baton_steps_total", "steps", "model worker", "Engine steps."},
    {MetricKind::kGauge, "baton_worker_certificate_expiry_timestamp_seconds", "seconds",
     "model worker",
     "When the worker's certificate of the cluster expires, since 1970; 0: plain text."},
    {MetricKind::kGauge, "baton_worker_connected", "1 or 0", "model worker",
     "1 while a router is connected."},
    {MetricKind::kGauge, "baton_worker_decode_rows", "sequences", "model worker",
     "Sequences in the batch."},
    {MetricKind::kGauge, "baton_worker_decode_waiting", "sequences", "model worker",
     "Sequences waiting for KV, room or a row."},
    {MetricKind::kGauge, "baton_worker_prefill_prompts", "prompts", "model worker",
     "Prompts waiting or computed here."},
    {MetricKind::kGauge, "baton_worker_prefill_queued_tokens", "tokens", "model worker",
     "Prompt tokens still to be computed."},
    {MetricKind::kGauge, "baton_worker_routers", "routers", "model worker",
     "Routers that are connected."},
    {MetricKind::kTotal, "baton_worker_routers_lost_total", "routers", "model worker",
     "Streams of routers that ended, for whatever reason."},
};

consteval const MetricDeclaration& WorkerMetric(std::string_view name) {
  return FindMetric(kWorkerMetrics, name);
}

}  // namespace baton
