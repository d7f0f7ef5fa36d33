#include "server/api/view_series.h"

#include "router/router_series.h"
#include "server/api/api_series.h"
#include "server/api/vllm_series.h"

namespace baton {
namespace {

using View = FrontView;

constexpr const char* kFailoverCauseNames[kFailoverCauses] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "late"};
constexpr const char* kRecomputeReasonNames[kRecomputeReasons] = {
    "worker_lost", "part_failed", "handoff_failed", "stuck", "draining", "late", "preempted"};

double KvUsage(const View& view) {
  const int64_t total = view.cluster.kv_pages_total, free = view.cluster.kv_pages_free;
  return total > 0 ? static_cast<double>(total - free) / static_cast<double>(total) : 0;
}

}  // namespace

std::vector<MetricRow<FrontView>> ViewRows(const MetricLabels& vllm, const MetricLabels& own) {
  std::vector<MetricRow<View>> rows = {
      {VllmMetric("vllm:num_requests_running"), vllm,
       [](const View& view) { return view.cluster.running; }},
      {VllmMetric("vllm:num_requests_waiting"), vllm,
       [](const View& view) { return view.cluster.waiting; }},
      {VllmMetric("vllm:kv_cache_usage_perc"), vllm, KvUsage},
      {RouterMetric("baton_requests_running"), own,
       [](const View& view) { return view.cluster.running; }},
      {RouterMetric("baton_queue_depth"), With(own, {{"stage", "route"}}),
       [](const View& view) { return view.cluster.waiting; }},
      {RouterMetric("baton_queue_depth"), With(own, {{"stage", "text"}}),
       [](const View& view) { return view.text.jobs; }},
      {ApiMetric("baton_text_queue_bytes"), own, [](const View& view) { return view.text.bytes; }},
      {RouterMetric("baton_kv_usage_ratio"), own, KvUsage},
      {VllmMetric("vllm:num_requests_waiting_by_reason"), With(vllm, {{"reason", "capacity"}}),
       [](const View& view) { return view.cluster.waiting; }},
      {VllmMetric("vllm:num_preemptions_total"), vllm,
       [](const View& view) { return view.cluster.preemptions; }},
      {RouterMetric("baton_pool_desired_replicas"),
       {own[0], {"role", "prefill"}},
       [](const View& view) { return view.cluster.desired_prefill; }},
      {RouterMetric("baton_pool_desired_replicas"),
       {own[0], {"role", "decode"}},
       [](const View& view) { return view.cluster.desired_decode; }},
      {ApiMetric("baton_slo_limit_seconds"), With(own, {{"slo", "ttft"}}),
       [](const View& view) { return absl::ToDoubleSeconds(view.slo.ttft); }},
      {ApiMetric("baton_slo_limit_seconds"), With(own, {{"slo", "itl"}}),
       [](const View& view) { return absl::ToDoubleSeconds(view.slo.itl); }},
      {RouterMetric("baton_cluster_kv_capacity_pages"), own,
       [](const View& view) { return view.cluster.kv_pages_total; }},
      {RouterMetric("baton_cluster_kv_free_pages"), own,
       [](const View& view) { return view.cluster.kv_pages_free; }},
      {ApiMetric("baton_ready"), With(own, {{"component", "cluster"}}),
       [](const View& view) { return view.is_ready; }},
      {RouterMetric("baton_workers"), With(own, {{"prefers", "prefill"}}),
       [](const View& view) { return view.cluster.prefill_workers; }},
      {RouterMetric("baton_workers"), With(own, {{"prefers", "decode"}}),
       [](const View& view) { return view.cluster.decode_workers; }},
      {RouterMetric("baton_workers_standing"), own,
       [](const View& view) { return view.cluster.standing_workers; }},
      {RouterMetric("baton_links_broken"), own,
       [](const View& view) { return view.cluster.broken_links; }},
      {RouterMetric("baton_relay_ranks_replaced_total"), own,
       [](const View& view) { return view.cluster.ranks_replaced; }},
      {RouterMetric("baton_relay_sinks_replaced_total"), own,
       [](const View& view) { return view.cluster.sinks_replaced; }},
      {RouterMetric("baton_prompts_followed_total"), own,
       [](const View& view) { return view.cluster.followed; }},
      {ApiMetric("baton_http_connections"), own, [](const View& view) { return view.http.open; }},
      {ApiMetric("baton_http_connections_refused_total"), own,
       [](const View& view) { return view.http.refused; }},
      {ApiMetric("baton_http_idle_closed_total"), own,
       [](const View& view) { return view.http.idle_closed; }},
      {ApiMetric("baton_http_slow_readers_total"), own,
       [](const View& view) { return view.http.too_slow; }},
      {ApiMetric("baton_http_incoming_bytes"), own,
       [](const View& view) { return view.http.incoming; }},
      {ApiMetric("baton_http_incoming_refused_total"), own,
       [](const View& view) { return view.http.incoming_refused; }},
      {ApiMetric("baton_http_unsent_bytes"), own,
       [](const View& view) { return view.http.unsent; }},
      {ApiMetric("baton_http_unread_closed_total"), own,
       [](const View& view) { return view.http.unread_closed; }},
      {ApiMetric("baton_tls_handshakes"), own, [](const View& view) { return view.http.shaking; }},
      {ApiMetric("baton_tls_reloads_total"), With(own, {{"result", "ok"}}),
       [](const View& view) { return view.http.reloads; }},
      {ApiMetric("baton_tls_reloads_total"), With(own, {{"result", "refused"}}),
       [](const View& view) { return view.http.reloads_refused; }},
      {ApiMetric("baton_tls_certificate_expiry_seconds"), own,
       [](const View& view) {
         return absl::ToDoubleSeconds(view.http.certificate_left.value_or(absl::ZeroDuration()));
       }},
  };
  for (size_t kind = 0; kind < kTransportKinds; ++kind) {
    rows.push_back({ApiMetric("baton_http_connections_total"),
                    With(own, {{"transport", kTransportKindNames[kind]}}),
                    [kind](const View& view) { return view.http.opened[kind]; }});
  }
  for (size_t result = 0; result < kTlsResults; ++result) {
    rows.push_back({ApiMetric("baton_tls_handshakes_total"),
                    With(own, {{"result", std::string(NameOf(static_cast<TlsResult>(result)))}}),
                    [result](const View& view) { return view.http.handshakes[result]; }});
  }
  for (size_t cause = 0; cause < kFailoverCauses; ++cause) {
    rows.push_back({RouterMetric("baton_failovers_total"),
                    With(own, {{"cause", kFailoverCauseNames[cause]}}),
                    [cause](const View& view) { return view.cluster.failovers[cause]; }});
  }
  for (size_t push = 0; push < kRelayPushes; ++push) {
    rows.push_back({RouterMetric("baton_relays_total"),
                    With(own, {{"push", std::string(NameOf(static_cast<RelayPush>(push)))}}),
                    [push](const View& view) { return view.cluster.relays_by_push[push]; }});
  }
  for (size_t reason = 0; reason < kRecomputeReasons; ++reason) {
    rows.push_back({RouterMetric("baton_recompute_tokens_total"),
                    With(own, {{"reason", kRecomputeReasonNames[reason]}}),
                    [reason](const View& view) { return view.cluster.recomputed_tokens[reason]; }});
  }
  return rows;
}

std::string_view RecomputeReasonName(int reason) {
  return kRecomputeReasonNames[static_cast<size_t>(reason)];
}

}  // namespace baton
