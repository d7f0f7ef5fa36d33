// Series under vLLM's names, so that dashboards, autoscalers and gateways made for vLLM find what
// they look for. Its definitions are in its vllm/v1/metrics/loggers.py; bounds are a superset.
// Constants, any thread.
#pragma once

#include "common/metric_declaration.h"

namespace baton {

inline constexpr MetricDeclaration kVllmMetrics[] = {
    {MetricKind::kGauge, "vllm:cache_config_info", "1",
     "model_name engine block_size num_gpu_blocks",
     "The KV of all decode workers, always 1: tokens of a page, and pages. From the first worker "
     "on."},
    {MetricKind::kHistogram, "vllm:e2e_request_latency_seconds", "seconds", "model_name engine",
     "Arrival of a request to its end."},
    {MetricKind::kTotal, "vllm:generation_tokens_total", "tokens", "model_name engine",
     "Tokens generated."},
    {MetricKind::kHistogram, "vllm:inter_token_latency_seconds", "seconds", "model_name engine",
     "Gap between tokens of a request."},
    {MetricKind::kHistogram, "vllm:iteration_tokens_total", "tokens", "model_name engine",
     "Tokens of an engine step: prompt tokens and one per row. On the workers' pages."},
    {MetricKind::kGauge, "vllm:kv_cache_usage_perc", "ratio", "model_name engine",
     "Share of the KV pages in use, 0 to 1."},
    {MetricKind::kTotal, "vllm:num_preemptions_total", "preemptions", "model_name engine",
     "Times that a sequence lost its pages to older ones and was computed again."},
    {MetricKind::kGauge, "vllm:num_requests_running", "requests", "model_name engine",
     "Requests at the workers."},
    {MetricKind::kGauge, "vllm:num_requests_waiting", "requests", "model_name engine",
     "Requests waiting for a worker."},
    {MetricKind::kGauge, "vllm:num_requests_waiting_by_reason", "requests",
     "model_name engine reason", "Requests waiting for a worker, by reason: capacity."},
    {MetricKind::kCounter, "vllm:prefix_cache_hits_total", "tokens", "model_name engine",
     "Prompt tokens whose KV was found."},
    {MetricKind::kCounter, "vllm:prefix_cache_queries_total", "tokens", "model_name engine",
     "Prompt tokens that were looked up among those with KV."},
    {MetricKind::kCounter, "vllm:prompt_tokens_by_source_total", "tokens",
     "model_name engine source",
     "Prompt tokens by where their KV came from: local_compute or local_cache_hit."},
    {MetricKind::kCounter, "vllm:prompt_tokens_cached_total", "tokens", "model_name engine",
     "Prompt tokens whose KV was reused."},
    {MetricKind::kCounter, "vllm:prompt_tokens_total", "tokens", "model_name engine",
     "Tokens of prompts, those included whose KV was reused."},
    {MetricKind::kHistogram, "vllm:request_decode_time_seconds", "seconds", "model_name engine",
     "First token to last token."},
    {MetricKind::kHistogram, "vllm:request_generation_tokens", "tokens", "model_name engine",
     "Tokens generated."},
    {MetricKind::kHistogram, "vllm:request_inference_time_seconds", "seconds", "model_name engine",
     "Start of computing to the last token."},
    {MetricKind::kHistogram, "vllm:request_max_num_generation_tokens", "tokens",
     "model_name engine", "The most tokens that a choice of a request had."},
    {MetricKind::kHistogram, "vllm:request_params_max_tokens", "tokens", "model_name engine",
     "The limit of tokens requests set."},
    {MetricKind::kHistogram, "vllm:request_params_n", "choices", "model_name engine",
     "Choices per prompt that requests asked for."},
    {MetricKind::kHistogram, "vllm:request_prefill_kv_computed_tokens", "tokens",
     "model_name engine", "Tokens of a request's prompts whose KV was computed, not reused."},
    {MetricKind::kHistogram, "vllm:request_prefill_time_seconds", "seconds", "model_name engine",
     "Time the prompt is computed."},
    {MetricKind::kHistogram, "vllm:request_prompt_tokens", "tokens", "model_name engine",
     "Tokens of prompts."},
    {MetricKind::kHistogram, "vllm:request_queue_time_seconds", "seconds", "model_name engine",
     "Time a request waits before it is computed."},
    {MetricKind::kCounter, "vllm:request_success_total", "requests",
     "model_name engine finished_reason", "Requests that ran to their end, by reason."},
    {MetricKind::kHistogram, "vllm:request_time_per_output_token_seconds", "seconds",
     "model_name engine", "Mean gap between tokens of a request."},
    {MetricKind::kHistogram, "vllm:time_to_first_token_seconds", "seconds", "model_name engine",
     "Arrival of a request to its first token."},
};

consteval const MetricDeclaration& VllmMetric(std::string_view name) {
  return FindMetric(kVllmMetrics, name);
}

}  // namespace baton
