// What the router process exports: family A under vLLM's names, family B under our own. Front
// thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics.h"
#include "router/router.h"

namespace baton {

struct FinishedRequest {
  std::string_view endpoint;  // GenerationApi::name
  bool stream = false;
  int http_status = 200;    // 499: the client went away
  std::string_view finish;  // stop, length, abort, error; empty: refused before it ran
  int64_t n_prompt = 0, n_tokens = 0, max_tokens = 0;
  absl::Duration text_time, total;
  Timeline timeline;
};

class FrontMetrics {
 public:
  FrontMetrics(MetricsRegistry* registry, const std::string& model, int64_t max_context,
               const std::string& version);

  void OnStarted() { started_.Add(); }  // accepted by the router; OnFinished will come
  void OnReleased(const EmitReleased& released);
  void OnFirstToken(absl::Duration ttft);
  void OnNextToken(absl::Duration gap);
  void OnFinished(const FinishedRequest& request);
  void SetView(const ClusterView& view, bool is_ready);

 private:
  void ObserveStages(const FinishedRequest& request);
  void ObservePlan(const Timeline& timeline);

  MetricsRegistry* registry_;
  const MetricLabels vllm_labels_, labels_;
  HistogramMetric vllm_ttft_, vllm_itl_, vllm_tpot_, vllm_e2e_, vllm_queue_, vllm_prefill_,
      vllm_decode_, vllm_inference_, vllm_prompt_size_, vllm_output_size_, vllm_max_tokens_;
  CounterMetric vllm_prompt_tokens_, vllm_output_tokens_;
  GaugeMetric vllm_running_, vllm_waiting_, vllm_kv_usage_;
  HistogramMetric ttft_, itl_, tpot_, duration_;
  HistogramMetric cancel_latency_;
  CounterMetric started_, overdue_;
  std::vector<CounterMetric> failovers_;  // by FailoverCause
  std::array<uint64_t, kFailoverCauses> reported_failovers_{};
  std::vector<CounterMetric> relays_;  // by RelayPush
  std::array<uint64_t, kRelayPushes> reported_relays_{};
  HistogramMetric ranks_;
  CounterMetric ranks_replaced_, sinks_replaced_;
  uint64_t reported_ranks_replaced_ = 0, reported_sinks_replaced_ = 0;
  std::vector<CounterMetric> recomputed_;  // by reason
  std::array<uint64_t, kRecomputeReasons> reported_recomputed_{};
  GaugeMetric running_, waiting_, kv_usage_, kv_total_, kv_free_, ready_, prefill_workers_,
      decode_workers_;
};

}  // namespace baton
