#include "server/api/request_series.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "router/router_series.h"
#include "server/api/api_series.h"
#include "server/api/vllm_series.h"

namespace baton {
namespace {

using Request = FinishedRequest;

// --- values -------------------------------------------------------------------------------------

// Seconds of a part of a request's life. Nothing for requests without a token.
MetricRow<Request>::Value Seconds(absl::Duration (*part)(const Request&)) {
  return [part](const Request& request) -> std::optional<double> {
    if (request.n_tokens <= 0) return std::nullopt;
    return absl::ToDoubleSeconds(part(request));
  };
}

absl::Duration Queued(const Request& request) {
  return request.timeline.router_queue + request.timeline.prefill_queue;
}

// Belongs to the choice that ended last, as the timeline does.
absl::Duration AfterFirstToken(const Request& request) {
  return request.timeline.total - request.timeline.ttft;
}

std::optional<double> SecondsPerToken(const Request& request) {
  if (request.n_last_tokens <= 1) return std::nullopt;
  return absl::ToDoubleSeconds(AfterFirstToken(request)) /
         static_cast<double>(request.n_last_tokens - 1);
}

MetricRow<Request>::Value EndedBy(std::string_view reason) {
  return [reason](const Request& request) -> std::optional<double> {
    if (request.finish != reason) return std::nullopt;
    return 1;
  };
}

MetricRow<Request>::Value FirstTokenPart(absl::Duration (*part)(const Request&)) {
  return [part](const Request& request) -> std::optional<double> {
    if (!request.first_token) return std::nullopt;
    return absl::ToDoubleSeconds(part(request));
  };
}

using Part = absl::Duration (*)(const Request&);

// Stages of the time to the first token, in their order.
constexpr std::pair<const char*, Part> kFirstTokenStages[] = {
    {"text", [](const Request& request) { return request.text_time; }},
    {"plan", [](const Request& request) { return request.plan_time; }},
    {"route", [](const Request& request) { return request.timeline.queue_to_first; }},
    {"wire", [](const Request& request) { return request.wire_time; }},
    {"inbox", [](const Request& request) { return request.timeline.inbox; }},
    {"prefill_queue",
     [](const Request& request) { return request.timeline.prefill_queue_to_first; }},
    {"prefill", [](const Request& request) { return request.timeline.prefill_to_first; }},
    {"draw", [](const Request& request) { return request.timeline.draw; }},
    {"deliver", [](const Request& request) { return request.deliver_time; }}};

// Takes stages of clocks of two machines: nothing is left where they add up to more.
absl::Duration FirstTokenRest(const Request& request) {
  absl::Duration rest = *request.first_token;
  for (const auto& [name, part] : kFirstTokenStages) rest -= part(request);
  return std::max(absl::ZeroDuration(), rest);
}

// Stages of the gap before the second token are told by the workers of the only attempt, at their
// ends: an answer of two tokens may miss one.
bool KnowsSecondGap(const Request& request) {
  const Timeline& timeline = request.timeline;
  return request.second_gap && timeline.attempts == 1 && timeline.exposed_transfer &&
         timeline.first_decode_step;
}

MetricRow<Request>::Value SecondTokenPart(absl::Duration (*part)(const Request&)) {
  return [part](const Request& request) -> std::optional<double> {
    if (!KnowsSecondGap(request)) return std::nullopt;
    return absl::ToDoubleSeconds(part(request));
  };
}

// The transfer counts up to its acknowledgement, the decode queue from the last byte on: where the
// rest is shorter than this overlap, nothing is left of it.
absl::Duration SecondTokenRest(const Request& request) {
  const Timeline& timeline = request.timeline;
  return std::max(absl::ZeroDuration(), *request.second_gap - *timeline.exposed_transfer -
                                            timeline.decode_queue - *timeline.first_decode_step);
}

// Nothing without a handoff: its zero would read as a transfer that is wholly hidden.
std::optional<double> ExposedTransfer(const Request& request) {
  if (!request.timeline.has_handoff || !request.timeline.exposed_transfer) return std::nullopt;
  return absl::ToDoubleSeconds(*request.timeline.exposed_transfer);
}

// Returns nothing unless all ranks of the relay have told what they computed.
std::optional<double> Imbalance(const Request& request) {
  const std::vector<absl::Duration>& ranks = request.timeline.rank_compute;
  if (ranks.size() < 2 || ranks.size() != request.timeline.slices.size()) return std::nullopt;
  const absl::Duration sum = std::accumulate(ranks.begin(), ranks.end(), absl::ZeroDuration());
  if (sum <= absl::ZeroDuration()) return std::nullopt;
  return absl::FDivDuration(*std::max_element(ranks.begin(), ranks.end()),
                            sum / static_cast<int64_t>(ranks.size()));
}

// A request that its client cut off is not judged, one that failed is not good.
MetricRow<Request>::Value Judged(bool (*is_good)(const Request&), bool wanted) {
  return [is_good, wanted](const Request& request) -> std::optional<double> {
    if (request.finish == "abort") return std::nullopt;
    if ((request.is_served() && is_good(request)) != wanted) return std::nullopt;
    return 1;
  };
}

std::optional<double> GoodTokens(const Request& request) {
  if (!request.is_served() || !request.in_ttft || !request.in_itl) return std::nullopt;
  return static_cast<double>(request.n_tokens);
}

// Only for a request that kept its first workers: the time between its tokens is that of the plan.
std::optional<double> GapError(const Request& request) {
  const std::optional<double> gap_seconds = SecondsPerToken(request);
  const Timeline& timeline = request.timeline;
  if (!gap_seconds || timeline.attempts > 1 || timeline.predicted_gap <= absl::ZeroDuration())
    return std::nullopt;
  return std::abs(*gap_seconds / absl::ToDoubleSeconds(timeline.predicted_gap) - 1);
}

std::optional<double> Ranks(const Request& request) {
  if (!HasPlan(request)) return std::nullopt;
  return static_cast<double>(request.timeline.slices.size());
}

std::optional<double> Computed(const Request& request) {
  return static_cast<double>(request.n_looked_up - request.n_reused);
}

// --- rows

std::vector<MetricRow<Request>> VllmRows(const MetricLabels& labels, double max_context) {
  const auto total = [](const Request& request) { return absl::ToDoubleSeconds(request.total); };
  std::vector<MetricRow<Request>> rows = {
      {VllmMetric("vllm:request_time_per_output_token_seconds"), labels, SecondsPerToken,
       TokenLatencyBounds()},
      {VllmMetric("vllm:e2e_request_latency_seconds"), labels, total, RequestLatencyBounds()},
      {VllmMetric("vllm:request_queue_time_seconds"), labels, Seconds(Queued),
       RequestLatencyBounds()},
      {VllmMetric("vllm:request_prefill_time_seconds"), labels,
       Seconds([](const Request& request) { return request.timeline.prefill; }),
       RequestLatencyBounds()},
      {VllmMetric("vllm:request_decode_time_seconds"), labels, Seconds(AfterFirstToken),
       RequestLatencyBounds()},
      {VllmMetric("vllm:request_inference_time_seconds"), labels,
       Seconds([](const Request& request) { return request.timeline.total - Queued(request); }),
       RequestLatencyBounds()},
      {VllmMetric("vllm:request_prompt_tokens"), labels, &Request::n_prompt,
       TokenCountBounds(max_context)},
      {VllmMetric("vllm:request_generation_tokens"), labels, &Request::n_tokens,
       TokenCountBounds(max_context)},
      {VllmMetric("vllm:request_params_max_tokens"), labels, &Request::max_tokens,
       TokenCountBounds(max_context)},
      {VllmMetric("vllm:request_max_num_generation_tokens"), labels, &Request::max_choice_tokens,
       TokenCountBounds(max_context)},
      {VllmMetric("vllm:request_params_n"), labels, &Request::n_per_prompt, {1, 2, 5, 10, 20}},
      {VllmMetric("vllm:request_prefill_kv_computed_tokens"), labels, Computed,
       TokenCountBounds(max_context)},
      {VllmMetric("vllm:prompt_tokens_total"), labels, &Request::n_prompt},
      {VllmMetric("vllm:prompt_tokens_cached_total"), labels, &Request::n_reused},
      {VllmMetric("vllm:prompt_tokens_by_source_total"),
       With(labels, {{"source", "local_compute"}}), Computed},
      {VllmMetric("vllm:prompt_tokens_by_source_total"),
       With(labels, {{"source", "local_cache_hit"}}), &Request::n_reused},
      {VllmMetric("vllm:prefix_cache_queries_total"), labels, &Request::n_looked_up},
      {VllmMetric("vllm:prefix_cache_hits_total"), labels, &Request::n_reused},
  };
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    rows.push_back({VllmMetric("vllm:request_success_total"),
                    With(labels, {{"finished_reason", reason}}), EndedBy(reason)});
  }
  return rows;
}

std::vector<MetricRow<Request>> OwnRows(const MetricLabels& labels) {
  const auto total = [](const Request& request) { return absl::ToDoubleSeconds(request.total); };
  std::vector<MetricRow<Request>> rows = {
      {ApiMetric("baton_time_per_output_token_seconds"), labels, SecondsPerToken,
       TokenLatencyBounds()},
      {ApiMetric("baton_request_duration_seconds"), labels, total, RequestLatencyBounds()},
      {RouterMetric("baton_decode_plan_error_ratio"), labels, GapError, PlanErrorBounds()},
      {RouterMetric("baton_prefill_chain_processes"),
       labels,
       Ranks,
       {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}},
  };
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    rows.push_back({ApiMetric("baton_requests_ended_total"), With(labels, {{"reason", reason}}),
                    EndedBy(reason)});
  }
  const struct {
    const char* name;
    absl::Duration (*part)(const Request&);
  } kStages[] = {
      {"text", [](const Request& request) { return request.text_time; }},
      {"route", [](const Request& request) { return request.timeline.router_queue; }},
      {"prefill_queue", [](const Request& request) { return request.timeline.prefill_queue; }},
      {"prefill", [](const Request& request) { return request.timeline.prefill; }},
      {"kv_transfer", [](const Request& request) { return request.timeline.transfer; }},
      {"decode_queue", [](const Request& request) { return request.timeline.decode_queue; }},
      {"decode", [](const Request& request) { return request.timeline.decode; }},
  };
  for (const auto& stage : kStages) {
    rows.push_back({ApiMetric("baton_request_stage_seconds"), With(labels, {{"stage", stage.name}}),
                    Seconds(stage.part), StageBounds()});
  }
  return rows;
}

// The stages of the time to the first token and of the gap before the second one.
std::vector<MetricRow<Request>> StageRows(const MetricLabels& labels) {
  std::vector<MetricRow<Request>> rows;
  const auto add_first = [&](const char* name, Part part) {
    rows.push_back({ApiMetric("baton_first_token_stage_seconds"), With(labels, {{"stage", name}}),
                    FirstTokenPart(part), StageBounds()});
  };
  for (const auto& [name, part] : kFirstTokenStages) add_first(name, part);
  add_first("unaccounted", FirstTokenRest);
  const std::pair<const char*, Part> kSecond[] = {
      {"kv_transfer", [](const Request& request) { return *request.timeline.exposed_transfer; }},
      {"decode_queue", [](const Request& request) { return request.timeline.decode_queue; }},
      {"decode_step", [](const Request& request) { return *request.timeline.first_decode_step; }},
      {"unaccounted", SecondTokenRest}};
  for (const auto& [name, part] : kSecond)
    rows.push_back({ApiMetric("baton_second_token_stage_seconds"), With(labels, {{"stage", name}}),
                    SecondTokenPart(part), StageBounds()});
  rows.push_back({ApiMetric("baton_second_token_gap_seconds"), labels,
                  SecondTokenPart([](const Request& request) { return *request.second_gap; }),
                  StageBounds()});
  rows.push_back(
      {ApiMetric("baton_kv_transfer_exposed_seconds"), labels, ExposedTransfer, StageBounds()});
  return rows;
}

std::vector<MetricRow<Request>> PlanRows(const MetricLabels& labels) {
  const auto if_planned = [](absl::Duration Timeline::*time) {
    return [time](const Request& request) -> std::optional<double> {
      if (!HasPlan(request)) return std::nullopt;
      return absl::ToDoubleSeconds(request.timeline.*time);
    };
  };
  return {{RouterMetric("baton_plan_first_token_seconds"), With(labels, {{"kind", "predicted"}}),
           if_planned(&Timeline::predicted), StageBounds()},
          {RouterMetric("baton_plan_first_token_seconds"), With(labels, {{"kind", "actual"}}),
           if_planned(&Timeline::took), StageBounds()},
          {RouterMetric("baton_prefill_imbalance_ratio"),
           labels,
           Imbalance,
           {1, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3, 5, 10}}};
}

std::vector<MetricRow<Request>> GoodRows(const MetricLabels& labels) {
  using Is = bool (*)(const Request&);
  const std::pair<const char*, Is> kLimits[] = {
      {"ttft", [](const Request& request) { return request.in_ttft; }},
      {"itl", [](const Request& request) { return request.in_itl; }},
      {"all", [](const Request& request) { return request.in_ttft && request.in_itl; }}};
  std::vector<MetricRow<Request>> rows = {
      {ApiMetric("baton_goodput_tokens_total"), labels, GoodTokens}};
  for (const auto& [name, is_good] : kLimits) {
    for (const bool met : {true, false})
      rows.push_back({ApiMetric("baton_slo_requests_total"),
                      With(labels, {{"slo", name}, {"met", met ? "true" : "false"}}),
                      Judged(is_good, met)});
  }
  return rows;
}

}  // namespace

std::vector<double> PlanErrorBounds() {
  return {.01, .02, .05, .075, .1, .15, .2, .25, .3, .4, .5, .75, 1, 2, 5, 10};
}

bool HasPlan(const Request& request) {
  const Timeline& timeline = request.timeline;
  return request.n_tokens > 0 && timeline.took > absl::ZeroDuration() &&
         timeline.predicted > absl::ZeroDuration();
}

std::vector<MetricRow<Request>> RequestRows(const MetricLabels& vllm, const MetricLabels& own,
                                            double max_context) {
  std::vector<MetricRow<Request>> rows = VllmRows(vllm, max_context);
  for (const auto& more : {OwnRows(own), StageRows(own), PlanRows(own), GoodRows(own)})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace baton
