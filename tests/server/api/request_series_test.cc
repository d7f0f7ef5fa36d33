// Series after requests that have ended.
#include "server/api/front_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

// 11 ms to the first token, 5 ms to the second one.
FinishedRequest Served() {
  FinishedRequest request;
  request.endpoint = "completions";
  request.finish = "length";
  request.n_prompt = request.n_looked_up = 100;
  request.n_reused = 64;
  request.n_tokens = request.n_last_tokens = request.max_choice_tokens = 10;
  request.max_tokens = 16;
  request.text_time = 1 * kMs;
  request.total = 60 * kMs;
  request.first_token = 11 * kMs;
  request.second_gap = 5 * kMs;
  request.plan_time = 0.1 * kMs;
  request.wire_time = 0.2 * kMs;
  request.deliver_time = 0.1 * kMs;
  Timeline& timeline = request.timeline;
  timeline.inbox = 0.3 * kMs;
  timeline.draw = 0.15 * kMs;
  timeline.queue_to_first = timeline.router_queue = 2 * kMs;
  timeline.prefill_queue_to_first = timeline.prefill_queue = 3 * kMs;
  timeline.prefill_to_first = timeline.prefill = 4 * kMs;
  timeline.has_handoff = true;
  timeline.exposed_transfer = 1.5 * kMs;
  timeline.decode_queue = 0.5 * kMs;
  timeline.first_decode_step = 2 * kMs;
  timeline.ttft = 10 * kMs;
  timeline.total = 59 * kMs;
  timeline.took = 8 * kMs;
  timeline.predicted = 6 * kMs;
  timeline.slices = {100};
  return request;
}

class Page {
 public:
  Page() : metrics_(&registry_, "m", 4096) { view.slo = {.ttft = 20 * kMs, .itl = 10 * kMs}; }
  FrontMetrics* operator->() { return &metrics_; }
  // The value of a series, its labels but the model's in the order of the page; -1: none.
  double operator()(const std::string& series) {
    metrics_.SetView(view);
    const std::string text = registry_.Text();
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }
  FrontView view{};

 private:
  MetricsRegistry registry_;
  FrontMetrics metrics_;
};

std::string Own(const std::string& name, const std::string& labels = "") {
  return absl::StrCat(name, "{model=\"m\",role=\"router\"", labels, "}");
}

TEST_CASE("stages of the first and the second token add up to their times") {
  Page page;
  page->OnFinished(Served());
  const auto stage = [&](const std::string& name, const std::string& of) {
    return page(Own(name + "_sum", ",stage=\"" + of + "\""));
  };
  const std::string first = "baton_first_token_stage_seconds",
                    second = "baton_second_token_stage_seconds";
  CHECK(stage(first, "text") == Approx(1e-3));
  CHECK(stage(first, "route") == Approx(2e-3));
  CHECK(stage(first, "prefill_queue") == Approx(3e-3));
  CHECK(stage(first, "prefill") == Approx(4e-3));
  CHECK(stage(first, "plan") == Approx(1e-4));
  CHECK(stage(first, "wire") == Approx(2e-4));
  CHECK(stage(first, "inbox") == Approx(3e-4));
  CHECK(stage(first, "draw") == Approx(1.5e-4));
  CHECK(stage(first, "deliver") == Approx(1e-4));
  CHECK(stage(first, "unaccounted") == Approx(1.5e-4));
  CHECK(stage(second, "kv_transfer") == Approx(1.5e-3));
  CHECK(stage(second, "decode_queue") == Approx(0.5e-3));
  CHECK(stage(second, "decode_step") == Approx(2e-3));
  CHECK(stage(second, "unaccounted") == Approx(1e-3));
  CHECK(page(Own("baton_second_token_gap_seconds_sum")) == Approx(5e-3));
  CHECK(page(Own("baton_kv_transfer_exposed_seconds_sum")) == Approx(1.5e-3));
  const auto plan = [&](const std::string& kind) {
    return page("baton_plan_first_token_seconds_sum{kind=\"" + kind +
                "\",model=\"m\",role=\"router\"}");
  };
  CHECK(plan("predicted") == Approx(6e-3));
  CHECK(plan("actual") == Approx(8e-3));
}

TEST_CASE("what is unaccounted before the second token is never negative, so that sums only grow") {
  Page page;
  FinishedRequest request = Served();
  request.second_gap = 3 * kMs;
  page->OnFinished(request);
  CHECK(page(Own("baton_second_token_stage_seconds_sum", ",stage=\"unaccounted\"")) == 0);
  CHECK(page(Own("baton_second_token_stage_seconds_count", ",stage=\"unaccounted\"")) == 1);
}

TEST_CASE("what is unaccounted before the first token is never negative, either") {
  Page page;
  FinishedRequest request = Served();
  request.first_token = 9 * kMs;
  page->OnFinished(request);
  CHECK(page(Own("baton_first_token_stage_seconds_sum", ",stage=\"unaccounted\"")) == 0);
  CHECK(page(Own("baton_first_token_stage_seconds_count", ",stage=\"unaccounted\"")) == 1);
}

TEST_CASE("an answer without a handoff has no exposed transfer, but stages of its second token") {
  Page page;
  FinishedRequest request = Served();
  request.timeline.has_handoff = false;
  request.timeline.exposed_transfer = absl::ZeroDuration();
  page->OnFinished(request);
  CHECK(page(Own("baton_kv_transfer_exposed_seconds_count")) == 0);
  CHECK(page(Own("baton_second_token_gap_seconds_count")) == 1);
  CHECK(page(Own("baton_second_token_stage_seconds_sum", ",stage=\"unaccounted\"")) ==
        Approx(2.5e-3));
  page->OnFinished(Served());
  CHECK(page(Own("baton_kv_transfer_exposed_seconds_count")) == 1);
}

TEST_CASE("an answer whose workers have not told all has no stages of the second token") {
  Page page;
  FinishedRequest request = Served();
  SECTION("the prefill part has not ended") { request.timeline.exposed_transfer.reset(); }
  SECTION("another attempt") { request.timeline.attempts = 2; }
  SECTION("one token") { request.second_gap.reset(); }
  page->OnFinished(request);
  CHECK(page(Own("baton_second_token_gap_seconds_count")) == 0);
  CHECK(page(Own("baton_first_token_stage_seconds_count", ",stage=\"unaccounted\"")) == 1);
}

TEST_CASE("requests are good within the limits, bad beyond them or failed, unjudged if cut off") {
  Page page;
  const auto slo = [&](const std::string& which, bool met) {
    return page("baton_slo_requests_total{met=\"" + std::string(met ? "true" : "false") +
                "\",model=\"m\",role=\"router\",slo=\"" + which + "\"}");
  };
  page->OnFinished(Served());
  FinishedRequest slow = Served();
  slow.in_itl = false;
  page->OnFinished(slow);
  FinishedRequest cut = Served();
  cut.finish = "abort";
  page->OnFinished(cut);
  FinishedRequest failed = Served();
  failed.finish = "error";
  page->OnFinished(failed);
  CHECK(slo("all", true) == 1);
  CHECK(slo("all", false) == 2);
  CHECK(slo("ttft", true) == 2);
  CHECK(slo("ttft", false) == 1);
  CHECK(slo("itl", true) == 1);
  CHECK(slo("itl", false) == 2);
  CHECK(page(Own("baton_goodput_tokens_total")) == 10);
  CHECK(page(Own("baton_slo_limit_seconds", ",slo=\"ttft\"")) == Approx(0.02));
  page.view.slo.ttft = 30 * kMs;  // the limits may change while the process runs
  CHECK(page(Own("baton_slo_limit_seconds", ",slo=\"ttft\"")) == Approx(0.03));
}

TEST_CASE("vLLM's names count reused and computed tokens, choices, preemptions and pages") {
  Page page;
  FinishedRequest request = Served();
  request.n_per_prompt = request.n_choices = 2;
  request.n_looked_up = 200;
  page->OnFinished(request);
  // more: labels after the model's
  const auto vllm = [&](const std::string& name, const std::string& more = "") {
    return page("vllm:" + name + "{engine=\"0\",model_name=\"m\"" + more + "}");
  };
  CHECK(vllm("prefix_cache_queries_total") == 200);
  CHECK(vllm("prefix_cache_hits_total") == 64);
  CHECK(vllm("prompt_tokens_cached_total") == 64);
  CHECK(vllm("prompt_tokens_by_source_total", ",source=\"local_compute\"") == 136);
  CHECK(vllm("prompt_tokens_by_source_total", ",source=\"local_cache_hit\"") == 64);
  CHECK(vllm("request_prefill_kv_computed_tokens_sum") == 136);
  CHECK(vllm("request_max_num_generation_tokens_sum") == 10);
  CHECK(vllm("request_params_n_sum") == 2);
  page.view.cluster.preemptions = 3;
  page.view.cluster.waiting = 4;
  CHECK(vllm("num_preemptions_total") == 3);
  CHECK(vllm("num_requests_waiting_by_reason", ",reason=\"capacity\"") == 4);
  const auto cache = [](int pages) {
    return absl::StrCat(
        "vllm:cache_config_info{block_size=\"16\",engine=\"0\",model_name=\"m\","
        "num_gpu_blocks=\"",
        pages, "\"}");
  };
  CHECK(page(cache(500)) == -1);
  page.view.cluster.page_tokens = 16;
  page.view.cluster.kv_pages_total = 500;
  CHECK(page(cache(500)) == 1);
  page.view.cluster.kv_pages_total = 1000;  // a worker has joined
  CHECK(page(cache(500)) == -1);
  CHECK(page(cache(1000)) == 1);
}

TEST_CASE("tokens count as they leave, and their gaps stand under both names") {
  Page page;
  page->OnOtherToken();
  for (const int ms : {1, 3, 30}) page->OnNextToken(ms * kMs);
  CHECK(page(Own("baton_generated_tokens_total")) == 4);
  CHECK(page(Own("baton_inter_token_latency_seconds_count")) == 3);
  CHECK(page(Own("baton_inter_token_latency_seconds_sum")) == Approx(0.034));
  CHECK(
      page("vllm:inter_token_latency_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.003\"}") ==
      2);
  page->OnNextToken(30 * kMs);
  CHECK(page(Own("baton_inter_token_latency_seconds_count")) == 4);
  CHECK(page("vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"}") == 5);
}

TEST_CASE("a relay's imbalance is known when all of its ranks have told what they computed") {
  Page page;
  FinishedRequest request = Served();
  request.timeline.slices = {60, 40};
  request.timeline.rank_compute = {30 * kMs};
  page->OnFinished(request);
  CHECK(page(Own("baton_prefill_imbalance_ratio_count")) == 0);
  request.timeline.rank_compute = {30 * kMs, 10 * kMs};
  page->OnFinished(request);
  CHECK(page(Own("baton_prefill_imbalance_ratio_sum")) == Approx(1.5));
}

}  // namespace
}  // namespace baton
