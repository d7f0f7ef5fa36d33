// Series of requests and connections of clients, on the router's page.
// Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kApiMetrics[] = {
    {MetricKind::kCounter, "baton_access_refused_total", "requests", "model role reason",
     "Requests refused for their key, its limits or their Host, by reason."},
    {MetricKind::kHistogram, "baton_first_token_stage_seconds", "seconds", "model role stage",
     "Time to the first token by stages, each stamped where it passes: text; plan (workers chosen, "
     "messages sent); route (waits for a worker); wire (both ways between router and worker); "
     "inbox "
     "(the worker has it and is in a turn); prefill_queue; prefill; draw (to the worker's report); "
     "deliver (to the connection); unaccounted is the rest, with attempts that were given up."},
    {MetricKind::kTotal, "baton_generated_tokens_total", "tokens", "model role",
     "Tokens generated, counted as each leaves."},
    {MetricKind::kCounter, "baton_goodput_tokens_total", "tokens", "model role",
     "Tokens of requests that met all limits of server.slo_*."},
    {MetricKind::kGauge, "baton_http_connections", "connections", "model role",
     "Connections of clients that are open."},
    {MetricKind::kTotal, "baton_http_connections_refused_total", "connections", "model role",
     "Connections refused: the server (503), their address (503) or their key (429) had too many."},
    {MetricKind::kTotal, "baton_http_connections_total", "connections", "model role transport",
     "Connections of clients taken, by what carries them."},
    {MetricKind::kTotal, "baton_http_idle_closed_total", "connections", "model role",
     "Idle connections closed to make room for new ones."},
    {MetricKind::kGauge, "baton_http_incoming_bytes", "bytes", "model role",
     "Bytes of requests that are not whole yet."},
    {MetricKind::kTotal, "baton_http_incoming_refused_total", "requests", "model role",
     "Requests refused with 503: too many bytes were coming, of all or of their address."},
    {MetricKind::kTotal, "baton_http_slow_readers_total", "connections", "model role",
     "Connections closed because their clients took answers too slowly."},
    {MetricKind::kTotal, "baton_http_unread_closed_total", "connections", "model role",
     "Slowest readers closed: too many bytes waited for all, or for their address."},
    {MetricKind::kGauge, "baton_http_unsent_bytes", "bytes", "model role",
     "Bytes of answers that wait for their clients."},
    {MetricKind::kHistogram, "baton_inter_token_latency_seconds", "seconds", "model role",
     "Gap between tokens of a request."},
    {MetricKind::kCounter, "baton_key_requests_total", "requests", "model role key",
     "Requests for tokens, by the name of their key."},
    {MetricKind::kCounter, "baton_key_tokens_total", "tokens", "model role key kind",
     "Tokens of prompts and generated, by key."},
    {MetricKind::kHistogram, "baton_kv_transfer_exposed_seconds", "seconds", "model role",
     "Time from the end of a prompt's computing to its KV at the decode worker: the part of the "
     "transfer that nothing hides. Only of prompts whose KV went to another worker."},
    {MetricKind::kGauge, "baton_ready", "1 or 0", "model role component",
     "1 when the component can serve."},
    {MetricKind::kHistogram, "baton_request_duration_seconds", "seconds", "model role",
     "Arrival of a request to its end."},
    {MetricKind::kHistogram, "baton_request_stage_seconds", "seconds", "model role stage",
     "Time of a request in each part of its life."},
    {MetricKind::kCounter, "baton_requests_ended_total", "requests", "model role reason",
     "Requests that were started and have ended, by reason."},
    {MetricKind::kCounter, "baton_requests_started_total", "requests", "model role",
     "Requests the router took; each ends once."},
    {MetricKind::kCounter, "baton_requests_total", "requests",
     "model role endpoint stream code outcome", "Requests by endpoint, status and outcome."},
    {MetricKind::kHistogram, "baton_second_token_gap_seconds", "seconds", "model role",
     "Gap between the first and the second token of a choice, which the handoff may stretch."},
    {MetricKind::kHistogram, "baton_second_token_stage_seconds", "seconds", "model role stage",
     "The gap before the second token by stages: KV still on its way when the prompt was computed, "
     "decode queue, first decode step; unaccounted is the rest."},
    {MetricKind::kGauge, "baton_slo_limit_seconds", "seconds", "model role slo",
     "The limits of server.slo_ttft and server.slo_itl; 0: none."},
    {MetricKind::kCounter, "baton_slo_requests_total", "requests", "model role slo met",
     "Requests that ran, by whether they met the limits of server.slo_*: ttft, itl (the 99th "
     "percentile of a request's own gaps), all."},
    {MetricKind::kGauge, "baton_text_queue_bytes", "bytes", "model role",
     "Bytes of bodies that wait for a text thread."},
    {MetricKind::kHistogram, "baton_time_per_output_token_seconds", "seconds", "model role",
     "Mean gap between tokens of a request."},
    {MetricKind::kHistogram, "baton_time_to_first_token_seconds", "seconds", "model role",
     "Arrival of a request to its first token's bytes."},
    {MetricKind::kGauge, "baton_tls_certificate_expiry_seconds", "seconds", "model role",
     "Seconds until the certificate that is served expires; 0: no TLS."},
    {MetricKind::kGauge, "baton_tls_handshakes", "handshakes", "model role",
     "TLS handshakes under way."},
    {MetricKind::kTotal, "baton_tls_handshakes_total", "handshakes", "model role result",
     "TLS handshakes that ended, and how."},
    {MetricKind::kTotal, "baton_tls_reloads_total", "reloads", "model role result",
     "Times certificate and key were read again."},
};

consteval const MetricDeclaration& ApiMetric(std::string_view name) {
  return FindMetric(kApiMetrics, name);
}

}  // namespace baton
