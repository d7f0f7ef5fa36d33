#include "server/process/worker_endpoint.h"

#include "absl/strings/str_format.h"
#include "server/api/access_guard.h"
#include "server/api/api_error.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

using enum MetricKind;

std::vector<MetricRow<WorkerMetrics>> WorkerRows(const MetricLabels& labels) {
  std::vector<MetricRow<WorkerMetrics>> rows = {
      {kGauge, "baton_worker_connected", "1 while the router is connected.", labels,
       &WorkerMetrics::connected},
      {kTotal, "baton_engine_turns_total", "Turns of the engine's loop.", labels,
       [](const auto& m) { return m.engine.turns; }},
      {kGauge, "baton_engine_turn_seconds", "Age of the turn under way; 0: it waits for work.",
       labels, [](const auto& m) { return static_cast<double>(m.engine.age_us) / 1e6; }},
      {kGauge, "baton_worker_prefill_prompts", "Prompts waiting or computed here.", labels,
       &WorkerMetrics::prefill_prompts},
      {kGauge, "baton_worker_prefill_queued_tokens", "Prompt tokens still to be computed.", labels,
       [](const auto& m) { return m.load.prefill_queued_tokens; }},
      {kGauge, "baton_worker_decode_rows", "Sequences in the batch.", labels,
       [](const auto& m) { return m.load.decode_rows; }},
      {kGauge, "baton_worker_decode_waiting", "Sequences waiting for KV, room or a row.", labels,
       [](const auto& m) { return m.load.decode_waiting; }},
      {kGauge, "baton_kv_pages_total", "KV pages of this worker.", labels,
       &WorkerMetrics::pages_total},
      {kGauge, "baton_kv_pages_free", "KV pages nobody holds.", labels,
       [](const auto& m) { return m.load.pages_free; }},
      {kGauge, "baton_kv_pages_cached", "Free KV pages whose KV can be reused.", labels,
       &WorkerMetrics::pages_cached},
      {kGauge, "baton_kv_pages_promised", "KV pages promised to handoffs.", labels,
       &WorkerMetrics::pages_promised},
      {kTotal, "baton_kv_pages_trimmed_total",
       "KV pages that fell out of a window and were given back, whole or in part.", labels,
       &WorkerMetrics::pages_trimmed},
      {kTotal, "baton_steps_total", "Engine steps.", labels, &WorkerMetrics::steps},
      {kTotal, "baton_step_seconds_total", "Time inside engine steps.", labels,
       &WorkerMetrics::step_seconds},
      {kTotal, "baton_slice_blocks_total",
       "Blocks of relays' slices computed: some rows in one layer.", labels,
       &WorkerMetrics::slice_blocks},
      {kTotal, "baton_slice_seconds_total", "Time inside blocks of relays' slices.", labels,
       &WorkerMetrics::slice_seconds},
      {kTotal, "baton_slice_wait_seconds_total",
       "Time in which a relay's slice waited for KV of the rank before.", labels,
       &WorkerMetrics::slice_wait_seconds},
      {kTotal, "baton_prefill_tokens_total", "Prompt tokens computed.", labels,
       &WorkerMetrics::prefill_tokens},
      {kTotal, "baton_prefill_reused_tokens_total", "Prompt tokens whose KV was reused.", labels,
       &WorkerMetrics::reused_tokens},
      {kTotal, "baton_decode_tokens_total", "Tokens decoded.", labels,
       &WorkerMetrics::decode_tokens},
      {kTotal, "baton_parts_ended_total", "Parts of requests that ended here.", labels,
       &WorkerMetrics::parts_ended},
      {kTotal, "baton_cancellations_total", "Parts of requests cancelled here.", labels,
       &WorkerMetrics::parts_cancelled},
      {kTotal, "baton_parts_failed_total", "Parts of requests that failed here.", labels,
       &WorkerMetrics::parts_failed},
      {kTotal, "baton_preemptions_total",
       "Requests that lost their KV pages to older ones and start anew.", labels,
       &WorkerMetrics::preemptions},
      {kTotal, "baton_kv_sent_bytes_total", "KV bytes sent to other workers.", labels,
       [](const auto& m) { return m.transfer.bytes_sent; }},
      {kTotal, "baton_kv_received_bytes_total", "KV bytes received from other workers.", labels,
       [](const auto& m) { return m.transfer.bytes_received; }},
      {kTotal, "baton_kv_held_pages_total",
       "KV pages of handoffs that this worker had already, so that they were not sent.", labels,
       [](const auto& m) { return m.transfer.held_pages; }},
      {kTotal, "baton_kv_signed_chunks_total",
       "KV chunks sent with a MAC, over networks that are not in kvtransfer.trusted_cidrs.", labels,
       [](const auto& m) { return m.transfer.signed_chunks; }},
      {kTotal, "baton_kv_resent_chunks_total", "KV chunks sent again.", labels,
       [](const auto& m) { return m.transfer.resent_chunks; }},
      {kTotal, "baton_kv_kept_chunks_total",
       "KV chunks of resumed handoffs that were not sent again.", labels,
       [](const auto& m) { return m.transfer.kept_chunks; }},
      {kTotal, "baton_kv_connections_lost_total",
       "Connections to workers that ended under a handoff.", labels,
       [](const auto& m) { return m.transfer.connections_lost; }},
      {kTotal, "baton_handoffs_resumed_total", "Times a handoff went on over a new connection.",
       labels, [](const auto& m) { return m.transfer.handoffs_resumed; }},
      {kTotal, "baton_handoffs_committed_total", "Handoffs that arrived whole.", labels,
       [](const auto& m) { return m.transfer.handoffs_committed; }},
      {kTotal, "baton_handoffs_failed_total", "Handoffs that failed.", labels,
       [](const auto& m) { return m.transfer.handoffs_failed; }},
  };
  for (size_t why = 0; why < kChunkRefusals; ++why) {
    rows.push_back({kTotal, "baton_kv_chunks_refused_total",
                    "KV chunks that came and were not taken.",
                    With(labels, {{"reason", std::string(NameOf(static_cast<ChunkRefusal>(why)))}}),
                    [why](const auto& m) { return m.transfer.refused_chunks[why]; }});
  }
  for (size_t why = 0; why < kPeerRefusals; ++why) {
    rows.push_back({kTotal, "baton_kv_peers_refused_total",
                    "Connections and messages for KV that were not taken.",
                    With(labels, {{"reason", std::string(NameOf(static_cast<PeerRefusal>(why)))}}),
                    [why](const auto& m) { return m.transfer.refused_peers[why]; }});
  }
  for (size_t why = 0; why < kTicketRefusals; ++why) {
    rows.push_back(
        {kTotal, "baton_kv_tickets_refused_total", "Tickets for KV that were not taken.",
         With(labels, {{"reason", std::string(NameOf(static_cast<TicketRefusal>(why)))}}),
         [why](const auto& m) { return m.transfer.refused_tickets[why]; }});
  }
  return rows;
}

std::vector<MetricRow<LinkReport>> LinkRows(const MetricLabels& labels) {
  std::vector<MetricRow<LinkReport>> rows = {
      {kGauge, "baton_kv_link_bytes_per_second",
       "What the link to a worker carried while it was busy; 0: not known.", labels,
       [](const LinkReport& link) { return link.rate.bytes_per_second; }},
      {kGauge, "baton_kv_link_round_trip_seconds", "Of a message on an idle link; 0: not known.",
       labels,
       [](const LinkReport& link) { return static_cast<double>(link.rate.round_trip_us) / 1e6; }},
  };
  for (size_t kind = 0; kind < kTraffics; ++kind) {
    rows.push_back({kTotal, "baton_relay_bytes_total",
                    "KV that arrived at a worker, for a relay's next rank (chain) or to decode "
                    "with (decode); each byte once.",
                    With(labels, {{"kind", std::string(NameOf(static_cast<Traffic>(kind)))}}),
                    [kind](const LinkReport& link) { return link.bytes[kind]; }});
  }
  return rows;
}

}  // namespace

WorkerEndpoint::WorkerEndpoint(const std::string& worker_name, const std::string& model,
                               std::function<WorkerMetrics()> read, absl::Duration engine_patience,
                               const ApiKeys* keys)
    : read_(std::move(read)),
      engine_patience_us_(absl::ToInt64Microseconds(engine_patience)),
      keys_(keys),
      labels_{{"worker", worker_name}, {"model", model}},
      series_(&registry_, WorkerRows(labels_)) {}

std::string WorkerEndpoint::Text() {
  const WorkerMetrics metrics = read_();
  series_.Take(metrics);
  for (const LinkReport& link : metrics.links) {
    auto it = links_.find(link.rate.peer);
    if (it == links_.end()) {
      MetricTable<LinkReport> series(&registry_, LinkRows(With(labels_, {{"link", link.address}})));
      it = links_.emplace(link.rate.peer, std::move(series)).first;
    }
    it->second.Take(link);
  }
  return registry_.Text();
}

std::optional<HttpReply> WorkerEndpoint::OnHead(HttpRequest* request) {
  const bool known =
      request->path == "/metrics" || request->path == "/livez" || request->path == "/readyz";
  if (!known) return OnBadRequest(*request, 404, "A worker has /metrics, /livez and /readyz.");
  if (request->method != "GET" && request->method != "HEAD") {
    return OnBadRequest(*request, 405, "This path takes GET.");
  }
  if (keys_ != nullptr && request->path == "/metrics") {
    const KeyCheck check =
        keys_->Check({request->authorization, request->api_key}, Scope::kMetrics);
    if (check.holder == nullptr) return ErrorReply(KeyError(check.refusal, Scope::kMetrics));
  }
  return std::nullopt;
}

void WorkerEndpoint::Attach(EventLoop* loop, HttpServer* server) {
  server_ = server;
  page_.emplace(loop, kMetricsPause, [this] { return Text(); });
}

void WorkerEndpoint::OnRequest(ExchangeId id, HttpRequest request) {
  if (request.path == "/metrics") {
    page_->Get([this, id](const std::string& page) { server_->Reply(id, MetricsReply(page)); });
    return;
  }
  const std::string problem = ProblemOf(read_(), request.path == "/readyz");
  HttpReply reply;
  if (problem.empty())
    reply.body = JsonObject([](JsonWriter& json) { json.Field("status", "ok"); });
  else
    reply = OnBadRequest(request, 503, problem);
  server_->Reply(id, reply);
}

std::string WorkerEndpoint::ProblemOf(const WorkerMetrics& metrics, bool must_be_ready) const {
  const EngineTurn& engine = metrics.engine;
  const int64_t patience_us = engine.PatienceUs(engine_patience_us_);
  if (engine.age_us / (must_be_ready ? 1 : 2) >= patience_us)
    return absl::StrFormat("The engine has been in one turn for %s, which should take %s.",
                           absl::FormatDuration(absl::Microseconds(engine.age_us)),
                           absl::FormatDuration(absl::Microseconds(engine.expected_us)));
  if (!must_be_ready) return "";
  if (metrics.load.draining) return "The worker is draining.";
  return metrics.connected ? "" : "The worker is not connected to its router.";
}

void WorkerEndpoint::TellCertificateExpiry(absl::Time expiry) {
  registry_
      .Gauge("baton_cluster_certificate_expiry_timestamp_seconds",
             "When the worker's certificate of the cluster expires, since 1970.", labels_)
      .Set(absl::ToDoubleSeconds(expiry - absl::UnixEpoch()));
}

HttpReply WorkerEndpoint::OnBadRequest(const HttpRequest&, int status, const std::string& message) {
  ApiError error;
  error.status = status;
  error.message = message;
  return ErrorReply(error);
}

}  // namespace baton
