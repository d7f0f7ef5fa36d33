#include "server/process/worker_endpoint.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/transfer_series.h"
#include "server/api/access_guard.h"
#include "server/api/api_error.h"
#include "server/api/json_writer.h"
#include "server/api/vllm_series.h"
#include "worker/worker_series.h"

namespace baton {
namespace {

std::vector<MetricRow<WorkerMetrics>> WorkerRows(const MetricLabels& labels,
                                                 const MetricLabels& vllm) {
  std::vector<MetricRow<WorkerMetrics>> rows = {
      {WorkerMetric("baton_worker_connected"), labels, [](const auto& m) { return m.routers > 0; }},
      {WorkerMetric("baton_worker_routers"), labels, &WorkerMetrics::routers},
      {WorkerMetric("baton_worker_routers_lost_total"), labels, &WorkerMetrics::routers_lost},
      {WorkerMetric("baton_parts_orphaned_total"), labels, &WorkerMetrics::parts_orphaned},
      {WorkerMetric("baton_engine_turns_total"), labels,
       [](const auto& m) { return m.engine.turns; }},
      {WorkerMetric("baton_engine_turn_seconds"), labels,
       [](const auto& m) { return static_cast<double>(m.engine.age_us) / 1e6; }},
      {WorkerMetric("baton_worker_prefill_prompts"), labels, &WorkerMetrics::prefill_prompts},
      {WorkerMetric("baton_worker_prefill_queued_tokens"), labels,
       [](const auto& m) { return m.load.prefill_queued_tokens; }},
      {WorkerMetric("baton_worker_decode_rows"), labels,
       [](const auto& m) { return m.load.decode_rows; }},
      {WorkerMetric("baton_worker_decode_waiting"), labels,
       [](const auto& m) { return m.load.decode_waiting; }},
      {WorkerMetric("baton_kv_capacity_pages"), labels, &WorkerMetrics::pages_total},
      {WorkerMetric("baton_kv_free_pages"), labels,
       [](const auto& m) { return m.load.pages_free; }},
      {WorkerMetric("baton_kv_pages_trimmed_total"), labels, &WorkerMetrics::pages_trimmed},
      {WorkerMetric("baton_steps_total"), labels, &WorkerMetrics::steps},
      {WorkerMetric("baton_step_seconds_total"), labels, &WorkerMetrics::step_seconds},
      {WorkerMetric("baton_slice_blocks_total"), labels, &WorkerMetrics::slice_blocks},
      {WorkerMetric("baton_slice_seconds_total"), labels, &WorkerMetrics::slice_seconds},
      {WorkerMetric("baton_slice_wait_seconds_total"), labels, &WorkerMetrics::slice_wait_seconds},
      {WorkerMetric("baton_prefill_tokens_total"), labels, &WorkerMetrics::prefill_tokens},
      {WorkerMetric("baton_prefill_reused_tokens_total"), labels, &WorkerMetrics::reused_tokens},
      {WorkerMetric("baton_decode_tokens_total"), labels, &WorkerMetrics::decode_tokens},
      {WorkerMetric("baton_parts_ended_total"), labels, &WorkerMetrics::parts_ended},
      {WorkerMetric("baton_cancellations_total"), labels, &WorkerMetrics::parts_cancelled},
      {WorkerMetric("baton_parts_failed_total"), labels, &WorkerMetrics::parts_failed},
      {WorkerMetric("baton_preemptions_total"), labels, &WorkerMetrics::preemptions},
      {TransferMetric("baton_kv_sent_bytes_total"), labels,
       [](const auto& m) { return m.transfer.bytes_sent; }},
      {TransferMetric("baton_kv_received_bytes_total"), labels,
       [](const auto& m) { return m.transfer.bytes_received; }},
      {TransferMetric("baton_kv_held_pages_total"), labels,
       [](const auto& m) { return m.transfer.held_pages; }},
      {TransferMetric("baton_kv_signed_chunks_total"), labels,
       [](const auto& m) { return m.transfer.signed_chunks; }},
      {TransferMetric("baton_kv_resent_chunks_total"), labels,
       [](const auto& m) { return m.transfer.resent_chunks; }},
      {TransferMetric("baton_kv_kept_chunks_total"), labels,
       [](const auto& m) { return m.transfer.kept_chunks; }},
      {TransferMetric("baton_kv_connections_lost_total"), labels,
       [](const auto& m) { return m.transfer.connections_lost; }},
      {TransferMetric("baton_handoffs_resumed_total"), labels,
       [](const auto& m) { return m.transfer.handoffs_resumed; }},
      {TransferMetric("baton_handoffs_committed_total"), labels,
       [](const auto& m) { return m.transfer.handoffs_committed; }},
      {TransferMetric("baton_handoffs_cancelled_total"), labels,
       [](const auto& m) { return m.transfer.handoffs_cancelled; }},
      {TransferMetric("baton_handoffs_failed_total"), labels,
       [](const auto& m) { return m.transfer.handoffs_failed; }},
  };
  using Value = MetricRow<WorkerMetrics>::Value;
  const std::pair<const char*, Value> kPages[] = {
      {"free", [](const auto& m) { return m.pages_free - m.pages_cached; }},
      {"cached", &WorkerMetrics::pages_cached},
      {"prefill", &WorkerMetrics::pages_prefill},
      {"decode", &WorkerMetrics::pages_decode},
      {"lent", [](const auto& m) { return m.pages_lent - m.pages_promised; }},
      {"promised", &WorkerMetrics::pages_promised},
      {"shared", &WorkerMetrics::pages_shared}};
  for (const auto& [state, value] : kPages)
    rows.push_back({WorkerMetric("baton_kv_pages"), With(labels, {{"state", state}}), value});
  using Row = MetricRow<WorkerMetrics>;
  const auto tokens = [](const auto& m) -> const HistogramCounts& { return m.step_tokens; };
  rows.push_back(
      Row::OfCounts(WorkerMetric("baton_step_tokens"), labels, tokens, kStepTokenBounds));
  rows.push_back(
      Row::OfCounts(VllmMetric("vllm:iteration_tokens_total"), vllm, tokens, kStepTokenBounds));
  rows.push_back(Row::OfCounts(
      WorkerMetric("baton_step_duration_seconds"), labels,
      [](const auto& m) -> const HistogramCounts& { return m.step_durations; }, kStageBounds));
  for (size_t why = 0; why < kChunkRefusals; ++why) {
    rows.push_back({TransferMetric("baton_kv_chunks_refused_total"),
                    With(labels, {{"reason", std::string(NameOf(static_cast<ChunkRefusal>(why)))}}),
                    [why](const auto& m) { return m.transfer.refused_chunks[why]; }});
  }
  for (size_t why = 0; why < kPeerRefusals; ++why) {
    rows.push_back({TransferMetric("baton_kv_peers_refused_total"),
                    With(labels, {{"reason", std::string(NameOf(static_cast<PeerRefusal>(why)))}}),
                    [why](const auto& m) { return m.transfer.refused_peers[why]; }});
  }
  for (size_t why = 0; why < kTicketRefusals; ++why) {
    rows.push_back(
        {TransferMetric("baton_kv_tickets_refused_total"),
         With(labels, {{"reason", std::string(NameOf(static_cast<TicketRefusal>(why)))}}),
         [why](const auto& m) { return m.transfer.refused_tickets[why]; }});
  }
  return rows;
}

std::vector<MetricRow<LinkReport>> LinkRows(const MetricLabels& labels) {
  std::vector<MetricRow<LinkReport>> rows = {
      {TransferMetric("baton_kv_link_bytes_per_second"), labels,
       [](const LinkReport& link) { return link.rate.bytes_per_second; }},
      {TransferMetric("baton_kv_link_round_trip_seconds"), labels,
       [](const LinkReport& link) { return static_cast<double>(link.rate.round_trip_us) / 1e6; }},
  };
  for (size_t kind = 0; kind < kTraffics; ++kind) {
    rows.push_back({TransferMetric("baton_relay_bytes_total"),
                    With(labels, {{"kind", std::string(NameOf(static_cast<Traffic>(kind)))}}),
                    [kind](const LinkReport& link) { return link.bytes[kind]; }});
  }
  return rows;
}

}  // namespace

WorkerEndpoint::WorkerEndpoint(const std::string& worker_name, const std::string& model,
                               std::function<WorkerMetrics()> read, absl::Duration engine_patience,
                               const ApiKeys* keys, const std::string& version)
    : read_(std::move(read)),
      engine_patience_us_(absl::ToInt64Microseconds(engine_patience)),
      keys_(keys),
      labels_{{"worker", worker_name}, {"model", model}},
      process_(&registry_, version),
      series_(&registry_, WorkerRows(labels_, {{"model_name", model}, {"engine", worker_name}})) {}

std::string WorkerEndpoint::Text() {
  const WorkerMetrics metrics = read_();
  process_.Update();
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
  return metrics.routers > 0 ? "" : "The worker is not connected to a router.";
}

void WorkerEndpoint::TellCertificateExpiry(absl::Time expiry) {
  registry_.Gauge(WorkerMetric("baton_worker_certificate_expiry_timestamp_seconds"), labels_)
      .Set(absl::ToDoubleSeconds(expiry - absl::UnixEpoch()));
}

HttpReply WorkerEndpoint::OnBadRequest(const HttpRequest&, int status, const std::string& message) {
  ApiError error;
  error.status = status;
  error.message = message;
  return ErrorReply(error);
}

}  // namespace baton
