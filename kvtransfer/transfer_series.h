// Series of the KV that a worker sends and receives, on the worker's page.
// Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kTransferMetrics[] = {
    {MetricKind::kTotal, "baton_handoffs_cancelled_total", "handoffs", "model worker",
     "Handoffs given up because their KV was not needed any more, as when a client has left."},
    {MetricKind::kTotal, "baton_handoffs_committed_total", "handoffs", "model worker",
     "Handoffs that arrived whole."},
    {MetricKind::kTotal, "baton_handoffs_failed_total", "handoffs", "model worker",
     "Handoffs that failed; cancelled ones are not among them."},
    {MetricKind::kTotal, "baton_handoffs_resumed_total", "resumptions", "model worker",
     "Times a handoff went on over a new connection."},
    {MetricKind::kTotal, "baton_kv_chunks_refused_total", "chunks", "model worker reason",
     "KV chunks that came and were not taken."},
    {MetricKind::kTotal, "baton_kv_connections_lost_total", "connections", "model worker",
     "Connections to workers that ended under a handoff."},
    {MetricKind::kTotal, "baton_kv_held_pages_total", "pages", "model worker",
     "KV pages of handoffs that this worker had already, so that they were not sent."},
    {MetricKind::kTotal, "baton_kv_kept_chunks_total", "chunks", "model worker",
     "KV chunks of resumed handoffs that were not sent again."},
    {MetricKind::kGauge, "baton_kv_link_bytes_per_second", "bytes per second", "model worker link",
     "What the link to a worker carried while it was busy; 0: not known."},
    {MetricKind::kGauge, "baton_kv_link_round_trip_seconds", "seconds", "model worker link",
     "Of a message on an idle link; 0: not known."},
    {MetricKind::kTotal, "baton_kv_peers_refused_total", "messages", "model worker reason",
     "Connections and messages for KV that were not taken."},
    {MetricKind::kTotal, "baton_kv_received_bytes_total", "bytes", "model worker",
     "KV bytes received from other workers."},
    {MetricKind::kTotal, "baton_kv_resent_chunks_total", "chunks", "model worker",
     "KV chunks sent again."},
    {MetricKind::kTotal, "baton_kv_sent_bytes_total", "bytes", "model worker",
     "KV bytes sent to other workers."},
    {MetricKind::kTotal, "baton_kv_signed_chunks_total", "chunks", "model worker",
     "KV chunks sent with a MAC, over networks that are not in kvtransfer.trusted_cidrs."},
    {MetricKind::kTotal, "baton_kv_tickets_refused_total", "tickets", "model worker reason",
     "Tickets for KV that were not taken."},
    {MetricKind::kTotal, "baton_relay_bytes_total", "bytes", "model worker link kind",
     "KV that arrived at a worker, for a relay's next rank (chain) or to decode with (decode); "
     "each byte once."},
};

consteval const MetricDeclaration& TransferMetric(std::string_view name) {
  return FindMetric(kTransferMetrics, name);
}

}  // namespace baton
