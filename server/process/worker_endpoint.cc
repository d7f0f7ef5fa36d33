#include "server/process/worker_endpoint.h"

#include "absl/strings/str_cat.h"
#include "server/api/api_error.h"
#include "server/api/json_writer.h"

namespace baton {

const WorkerEndpoint::Series WorkerEndpoint::kSeries[] = {
    {"baton_worker_connected", "1 while the router is connected.",
     [](const WorkerMetrics& m) { return m.connected ? 1.0 : 0.0; }, false},
    {"baton_worker_prefill_prompts", "Prompts waiting or computed here.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.prefill_prompts); }, false},
    {"baton_worker_prefill_queued_tokens", "Prompt tokens still to be computed.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.prefill_queued_tokens); }, false},
    {"baton_worker_decode_rows", "Sequences in the batch.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.decode_rows); }, false},
    {"baton_worker_decode_waiting", "Sequences waiting for KV, room or a row.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.decode_waiting); }, false},
    {"baton_kv_pages_total", "KV pages of this worker.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.pages_total); }, false},
    {"baton_kv_pages_free", "KV pages nobody holds.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.pages_free); }, false},
    {"baton_kv_pages_cached", "Free KV pages whose KV can be reused.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.pages_cached); }, false},
    {"baton_kv_pages_promised", "KV pages promised to handoffs.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.pages_promised); }, false},
    {"baton_kv_pages_trimmed_total",
     "KV pages that fell out of a window and were given back, whole or in part.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.pages_trimmed); }, true},
    {"baton_steps_total", "Engine steps.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.steps); }, true},
    {"baton_step_seconds_total", "Time inside engine steps.",
     [](const WorkerMetrics& m) { return m.step_seconds; }, true},
    {"baton_slice_blocks_total", "Blocks of relays' slices computed: some rows in one layer.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.slice_blocks); }, true},
    {"baton_slice_seconds_total", "Time inside blocks of relays' slices.",
     [](const WorkerMetrics& m) { return m.slice_seconds; }, true},
    {"baton_slice_wait_seconds_total",
     "Time in which a relay's slice waited for KV of the rank before.",
     [](const WorkerMetrics& m) { return m.slice_wait_seconds; }, true},
    {"baton_prefill_tokens_total", "Prompt tokens computed.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.prefill_tokens); }, true},
    {"baton_prefill_reused_tokens_total", "Prompt tokens whose KV was reused.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.reused_tokens); }, true},
    {"baton_decode_tokens_total", "Tokens decoded.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.decode_tokens); }, true},
    {"baton_parts_ended_total", "Parts of requests that ended here.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.parts_ended); }, true},
    {"baton_cancellations_total", "Parts of requests cancelled here.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.parts_cancelled); }, true},
    {"baton_parts_failed_total", "Parts of requests that failed here.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.parts_failed); }, true},
    {"baton_preemptions_total", "Requests that lost their KV pages to older ones and start anew.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.preemptions); }, true},
    {"baton_kv_sent_bytes_total", "KV bytes sent to other workers.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.bytes_sent); }, true},
    {"baton_kv_received_bytes_total", "KV bytes received from other workers.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.bytes_received); }, true},
    {"baton_kv_resent_chunks_total", "KV chunks sent again.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.resent_chunks); }, true},
    {"baton_kv_kept_chunks_total", "KV chunks of resumed handoffs that were not sent again.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.kept_chunks); }, true},
    {"baton_kv_connections_lost_total", "Connections to workers that ended under a handoff.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.connections_lost); }, true},
    {"baton_handoffs_resumed_total", "Times a handoff went on over a new connection.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.handoffs_resumed); }, true},
    {"baton_handoffs_committed_total", "Handoffs that arrived whole.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.handoffs_committed); },
     true},
    {"baton_handoffs_failed_total", "Handoffs that failed.",
     [](const WorkerMetrics& m) { return static_cast<double>(m.transfer.handoffs_failed); }, true},
};

void WorkerEndpoint::Report(ReportedCounter& counter, double value) {
  counter.first.Add(value - counter.second);
  counter.second = value;
}

WorkerEndpoint::WorkerEndpoint(const std::string& worker_name, const std::string& model,
                               std::function<WorkerMetrics()> read)
    : read_(std::move(read)), labels_{{"worker", worker_name}, {"model", model}} {
  for (const Series& series : kSeries) {
    if (series.is_counter) {
      counters_.emplace_back(registry_.Counter(series.name, series.help, labels_), 0.0);
    } else {
      gauges_.push_back(registry_.Gauge(series.name, series.help, labels_));
    }
  }
  for (size_t why = 0; why < kChunkRefusals; ++why) {
    MetricLabels reason = labels_;
    reason.emplace_back("reason", NameOf(static_cast<ChunkRefusal>(why)));
    refused_.emplace_back(registry_.Counter("baton_kv_chunks_refused_total",
                                            "KV chunks that came and were not taken.", reason),
                          0.0);
  }
}

std::string WorkerEndpoint::Text() {
  const WorkerMetrics metrics = read_();
  size_t gauge = 0, counter = 0;
  for (const Series& series : kSeries) {
    const double value = series.value(metrics);
    if (series.is_counter) {
      Report(counters_[counter++], value);
    } else {
      gauges_[gauge++].Set(value);
    }
  }
  for (size_t why = 0; why < kChunkRefusals; ++why)
    Report(refused_[why], static_cast<double>(metrics.transfer.refused_chunks[why]));
  for (const LinkReport& link : metrics.links) ReportLink(link);
  return registry_.Text();
}

void WorkerEndpoint::ReportLink(const LinkReport& link) {
  auto it = links_.find(link.peer);
  if (it == links_.end()) {
    MetricLabels labels = labels_;
    labels.emplace_back("link", link.address);
    LinkSeries series{
        .bytes = {},
        .rate = registry_.Gauge(
            "baton_kv_link_bytes_per_second",
            "What the link to a worker carried while it was busy; 0: not known.", labels),
        .round_trip = registry_.Gauge("baton_kv_link_round_trip_seconds",
                                      "Of a message on an idle link; 0: not known.", labels)};
    for (size_t i = 0; i < kTraffics; ++i) {
      MetricLabels kind = labels;
      kind.emplace_back("kind", NameOf(static_cast<Traffic>(i)));
      series.bytes.emplace_back(
          registry_.Counter("baton_relay_bytes_total",
                            "KV that arrived at a worker, for a relay's next rank (chain) or to "
                            "decode with (decode); each byte once.",
                            kind),
          0.0);
    }
    it = links_.emplace(link.peer, std::move(series)).first;
  }
  for (size_t i = 0; i < kTraffics; ++i)
    Report(it->second.bytes[i], static_cast<double>(link.bytes[i]));
  it->second.rate.Set(link.bytes_per_second);
  it->second.round_trip.Set(static_cast<double>(link.round_trip_us) / 1e6);
}

std::optional<HttpReply> WorkerEndpoint::OnHead(const HttpRequest& request) {
  const bool known =
      request.path == "/metrics" || request.path == "/livez" || request.path == "/readyz";
  if (!known) return OnBadRequest(404, "A worker has /metrics, /livez and /readyz.");
  if (request.method != "GET" && request.method != "HEAD") {
    return OnBadRequest(405, "This path takes GET.");
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
  HttpReply reply;
  reply.body = JsonObject([](JsonWriter& json) { json.Field("status", "ok"); });
  if (request.path == "/readyz") {
    const WorkerMetrics metrics = read_();
    if (!metrics.connected || metrics.draining) {
      reply = OnBadRequest(503, metrics.draining ? "The worker is draining."
                                                 : "The worker is not connected to its router.");
    }
  }
  server_->Reply(id, reply);
}

HttpReply WorkerEndpoint::OnBadRequest(int status, const std::string& message) {
  ApiError error;
  error.status = status;
  error.message = message;
  return ErrorReply(error);
}

}  // namespace baton
