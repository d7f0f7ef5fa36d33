#include "bench/load/load_bench.h"

#include <xxhash.h>

#include <boost/json.hpp>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/load_client.h"

namespace baton {
namespace {

// Open loop: starts every request at its time on its own thread, unless max_concurrency requests
// are in flight; then the request starts late and its lag is reported.
std::vector<Outcome> Replay(const HttpClient& client, const std::vector<LoadRequest>& requests,
                            int max_concurrency) {
  std::vector<Outcome> outcomes(requests.size());
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable finished;
  int in_flight = 0;
  const absl::Time start = absl::Now();
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::Time due = start + absl::Seconds(requests[i].start_s);
    absl::SleepFor(due - absl::Now());
    {
      std::unique_lock lock(mutex);
      finished.wait(lock, [&] { return in_flight < max_concurrency; });
      ++in_flight;
    }
    if (requests[i].start_s == 0)
      due = absl::Now();  // without a schedule a request starts when a place is free, without lag
    threads.emplace_back([&, i, due] {
      const double lag_ms = absl::ToDoubleMilliseconds(absl::Now() - due);
      outcomes[i] = RunLoadRequest(client, requests[i]);
      outcomes[i].lag_ms = lag_ms;
      std::lock_guard lock(mutex);
      --in_flight;
      finished.notify_one();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

struct Metric {
  const char* name;
  Distribution values;
};

struct Summary {
  int completed = 0, failed = 0, good = 0;
  int64_t n_input = 0, n_output = 0;
  std::vector<Metric> metrics;
  double lag_p99_ms = 0;
  uint64_t digest = 0;  // of all texts, in order of the requests
  std::string first_error;
};

Summary Summarize(const LoadBenchOptions& options, const std::vector<LoadRequest>& requests,
                  const std::vector<Outcome>& outcomes) {
  Summary sum;
  std::vector<double> lag, ttft, second, itl, tpot, e2el;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& out = outcomes[i];
    lag.push_back(out.lag_ms);
    if (!out.ok) {
      if (sum.failed++ == 0) sum.first_error = absl::StrFormat("request %d: %s", i, out.error);
      continue;
    }
    ++sum.completed;
    sum.n_input += static_cast<int64_t>(requests[i].prompt.size());
    sum.n_output += out.n_output;
    ttft.push_back(out.ttft_ms());
    e2el.push_back(out.e2el_ms());
    if (out.second_gap_ms() >= 0) second.push_back(out.second_gap_ms());
    for (const double gap : out.itl_ms()) itl.push_back(gap);
    const double per_token =
        out.n_output > 1 ? (e2el.back() - ttft.back()) / (out.n_output - 1) : 0;
    if (out.n_output > 1) tpot.push_back(per_token);
    if (ttft.back() <= options.goodput_ttft_ms && per_token <= options.goodput_tpot_ms) ++sum.good;
    sum.digest = XXH64(out.text.data(), out.text.size(), sum.digest);
  }
  sum.lag_p99_ms = Distribution(lag).percentile(99);
  sum.metrics = {{"ttft", Distribution(ttft)},
                 {"token2_gap", Distribution(second)},
                 {"itl", Distribution(itl)},
                 {"tpot", Distribution(tpot)},
                 {"e2el", Distribution(e2el)}};
  return sum;
}

void PrintTable(const LoadBenchOptions& options, const Summary& sum, double duration_s) {
  std::printf("%s  %s\n", options.label.c_str(), options.url.c_str());
  std::printf("  completed %d  failed %d  duration %.1f s  input %lld  output %lld tokens\n",
              sum.completed, sum.failed, duration_s, static_cast<long long>(sum.n_input),
              static_cast<long long>(sum.n_output));
  if (sum.failed > 0) std::printf("  first error: %s\n", sum.first_error.c_str());
  std::printf(
      "  requests/s %.2f  goodput/s %.2f (ttft <= %.0f ms, tpot <= %.0f ms)  output tok/s %.1f\n",
      sum.completed / duration_s, sum.good / duration_s, options.goodput_ttft_ms,
      options.goodput_tpot_ms, static_cast<double>(sum.n_output) / duration_s);
  std::printf("  %-12s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  for (const Metric& metric : sum.metrics) {
    std::printf("  %-12s %10.2f %10.2f %10.2f %10.2f %10.2f\n", metric.name, metric.values.mean(),
                metric.values.percentile(50), metric.values.percentile(90),
                metric.values.percentile(99), metric.values.percentile(100));
  }
  std::printf("  client start lag p99 %.2f ms  digest of all texts %016llx\n", sum.lag_p99_ms,
              static_cast<unsigned long long>(sum.digest));
}

// Adds a detail per request in the order of sending; a failed request has a TTFT of 0.
void AddDetails(const std::vector<LoadRequest>& requests, const std::vector<Outcome>& outcomes,
                boost::json::object* object) {
  boost::json::array lengths, ttfts;
  for (size_t i = 0; i < requests.size(); ++i) {
    lengths.push_back(requests[i].prompt.size());
    ttfts.push_back(outcomes[i].ok ? outcomes[i].ttft_ms() / 1e3 : 0.0);
  }
  (*object)["input_lens"] = std::move(lengths);
  (*object)["ttfts"] = std::move(ttfts);
}

boost::json::object Json(const LoadBenchOptions& options, const Summary& sum, double duration_s) {
  boost::json::object object{
      {"label", options.label},
      {"num_prompts", sum.completed + sum.failed},
      {"duration", duration_s},
      {"completed", sum.completed},
      {"failed", sum.failed},
      {"total_input_tokens", sum.n_input},
      {"total_output_tokens", sum.n_output},
      {"request_throughput", sum.completed / duration_s},
      {"request_goodput", sum.good / duration_s},
      {"output_throughput", static_cast<double>(sum.n_output) / duration_s},
      {"total_token_throughput", static_cast<double>(sum.n_input + sum.n_output) / duration_s},
      {"client_lag_p99_ms", sum.lag_p99_ms},
      {"digest", absl::StrFormat("%016x", sum.digest)}};
  for (const Metric& metric : sum.metrics) {
    const std::string name = metric.name;
    object["mean_" + name + "_ms"] = metric.values.mean();
    object["median_" + name + "_ms"] = metric.values.percentile(50);
    object["p99_" + name + "_ms"] = metric.values.percentile(99);
  }
  return object;
}

}  // namespace

int RunLoadBench(const LoadBenchOptions& options) {
  const absl::StatusOr<HttpUrl> url = HttpUrl::Parse(options.url);
  const absl::StatusOr<std::vector<LoadRequest>> requests =
      options.trace.path.empty() ? MakeSynthetic(options.synthetic) : ReadTrace(options.trace);
  if (!url.ok() || !requests.ok()) {
    const absl::Status& status = url.ok() ? requests.status() : url.status();
    std::fprintf(stderr, "bench load: %s\n", status.ToString().c_str());
    return 2;
  }
  const HttpClient client(*url);
  for (int i = 0; i < options.n_warmup; ++i) {
    const Outcome out = RunLoadRequest(client, requests->front());
    if (!out.ok) {
      std::fprintf(stderr, "bench load: warm-up request failed: %s\n", out.error.c_str());
      return 1;
    }
  }
  const absl::Time start = absl::Now();
  const std::vector<Outcome> outcomes = Replay(client, *requests, options.max_concurrency);
  const double duration_s = absl::ToDoubleSeconds(absl::Now() - start);
  const Summary sum = Summarize(options, *requests, outcomes);
  PrintTable(options, sum, duration_s);
  if (options.json) {
    boost::json::object object = Json(options, sum, duration_s);
    if (options.detailed) AddDetails(*requests, outcomes, &object);
    std::printf("%s\n", boost::json::serialize(object).c_str());
  }
  return sum.failed == 0 ? 0 : 1;
}

}  // namespace baton
