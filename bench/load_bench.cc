#include "bench/load_bench.h"

#include <xxhash.h>

#include <algorithm>
#include <boost/json.hpp>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/http_client.h"

namespace baton {
namespace {

struct Outcome {
  bool ok = false;
  std::string error;
  std::string text;
  int n_output = 0;
  double ttft_ms = 0, second_gap_ms = -1, e2el_ms = 0, lag_ms = 0;
  std::vector<double> itl_ms;  // gaps after the second chunk
};

std::string Body(const LoadRequest& request) {
  boost::json::array prompt(request.prompt.begin(), request.prompt.end());
  return boost::json::serialize(boost::json::object{{"prompt", std::move(prompt)},
                                                    {"max_tokens", request.max_tokens},
                                                    {"temperature", 0},
                                                    {"ignore_eos", true},
                                                    {"stream", true},
                                                    {"stream_options", {{"include_usage", true}}}});
}

// Reads one chunk of the stream into the outcome; false on an error object.
bool TakeChunk(std::string_view data, absl::Time received, absl::Time sent, absl::Time& last,
               Outcome& out) {
  boost::json::error_code bad;
  const boost::json::value value =
      boost::json::parse(boost::json::string_view(data.data(), data.size()), bad);
  const boost::json::object* chunk = bad ? nullptr : value.if_object();
  if (chunk == nullptr || chunk->contains("error")) {
    out.error = std::string(data);
    return false;
  }
  if (const auto* usage = chunk->if_contains("usage"); usage != nullptr && usage->is_object()) {
    if (const auto* n = usage->as_object().if_contains("completion_tokens"); n != nullptr) {
      out.n_output = n->to_number<int>(bad);
    }
  }
  const auto* choices = chunk->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return true;
  const boost::json::value& choice = choices->as_array()[0];
  const auto* text = choice.is_object() ? choice.as_object().if_contains("text") : nullptr;
  if (text != nullptr && text->is_string()) out.text.append(text->as_string());
  const double gap_ms = absl::ToDoubleMilliseconds(received - last);
  if (out.ttft_ms == 0) {
    out.ttft_ms = absl::ToDoubleMilliseconds(received - sent);
  } else if (out.second_gap_ms < 0) {
    out.second_gap_ms = gap_ms;
  } else {
    out.itl_ms.push_back(gap_ms);
  }
  last = received;
  return true;
}

Outcome RunOne(const HttpClient& client, const LoadRequest& request) {
  Outcome out;
  bool done = false;
  const std::string body = Body(request);
  const absl::Time sent = absl::Now();
  absl::Time last = sent;
  const absl::StatusOr<HttpResponse> response =
      client.Post("/v1/completions", body, [&](std::string_view data, absl::Time received) {
        if (data == "[DONE]") {
          done = true;
          return false;
        }
        return TakeChunk(data, received, sent, last, out);
      });
  out.e2el_ms = absl::ToDoubleMilliseconds(last - sent);
  if (!response.ok()) {
    out.error = std::string(response.status().ToString());
  } else if (response->status != 200) {
    out.error = absl::StrFormat("HTTP %d %s", response->status, response->body);
  } else if (out.error.empty() && !done) {
    out.error = "stream ended without [DONE]";
  } else if (out.error.empty() && out.n_output != request.max_tokens) {
    out.error = absl::StrFormat("%d tokens instead of %d", out.n_output, request.max_tokens);
  }
  out.ok = out.error.empty();
  return out;
}

// Open loop: every request starts at its time on a thread of its own, unless max_concurrency are
// in flight; then it starts late and the lag is reported.
std::vector<Outcome> Replay(const HttpClient& client, const std::vector<LoadRequest>& requests,
                            int max_concurrency) {
  std::vector<Outcome> outcomes(requests.size());
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable finished;
  int in_flight = 0;
  const absl::Time start = absl::Now();
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::Time due = start + absl::Seconds(requests[i].start_s);
    absl::SleepFor(due - absl::Now());
    {
      std::unique_lock lock(mutex);
      finished.wait(lock, [&] { return in_flight < max_concurrency; });
      ++in_flight;
    }
    threads.emplace_back([&, i, due] {
      const double lag_ms = absl::ToDoubleMilliseconds(absl::Now() - due);
      outcomes[i] = RunOne(client, requests[i]);
      outcomes[i].lag_ms = lag_ms;
      std::lock_guard lock(mutex);
      --in_flight;
      finished.notify_one();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct Metric {
  const char* name;
  std::vector<double> values;
};

struct Summary {
  int completed = 0, failed = 0, good = 0;
  int64_t n_input = 0, n_output = 0;
  Metric ttft{"ttft", {}}, second{"token2_gap", {}}, tpot{"tpot", {}}, itl{"itl", {}},
      e2el{"e2el", {}};
  double lag_p99_ms = 0;
  uint64_t digest = 0;  // of all texts in request order
  std::string first_error;
};

Summary Summarize(const LoadBenchOptions& options, const std::vector<LoadRequest>& requests,
                  const std::vector<Outcome>& outcomes) {
  Summary sum;
  std::vector<double> lags;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& out = outcomes[i];
    lags.push_back(out.lag_ms);
    if (!out.ok) {
      if (sum.failed++ == 0) sum.first_error = absl::StrFormat("request %d: %s", i, out.error);
      continue;
    }
    ++sum.completed;
    sum.n_input += static_cast<int64_t>(requests[i].prompt.size());
    sum.n_output += out.n_output;
    sum.ttft.values.push_back(out.ttft_ms);
    sum.e2el.values.push_back(out.e2el_ms);
    if (out.second_gap_ms >= 0) sum.second.values.push_back(out.second_gap_ms);
    sum.itl.values.insert(sum.itl.values.end(), out.itl_ms.begin(), out.itl_ms.end());
    const double tpot = out.n_output > 1 ? (out.e2el_ms - out.ttft_ms) / (out.n_output - 1) : 0;
    if (out.n_output > 1) sum.tpot.values.push_back(tpot);
    if (out.ttft_ms <= options.goodput_ttft_ms && tpot <= options.goodput_itl_ms) ++sum.good;
    sum.digest = XXH64(out.text.data(), out.text.size(), sum.digest);
  }
  sum.lag_p99_ms = Percentile(lags, 99);
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
      options.goodput_itl_ms, static_cast<double>(sum.n_output) / duration_s);
  std::printf("  %-12s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  for (const Metric* metric : {&sum.ttft, &sum.second, &sum.itl, &sum.tpot, &sum.e2el}) {
    std::printf("  %-12s %10.2f %10.2f %10.2f %10.2f %10.2f\n", metric->name, Mean(metric->values),
                Percentile(metric->values, 50), Percentile(metric->values, 90),
                Percentile(metric->values, 99), Percentile(metric->values, 100));
  }
  std::printf("  client start lag p99 %.2f ms  digest of all texts %016llx\n", sum.lag_p99_ms,
              static_cast<unsigned long long>(sum.digest));
}

void PrintJson(const LoadBenchOptions& options, const Summary& sum, double duration_s) {
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
  for (const Metric* metric : {&sum.ttft, &sum.second, &sum.itl, &sum.tpot, &sum.e2el}) {
    const std::string name = metric->name;
    object["mean_" + name + "_ms"] = Mean(metric->values);
    object["median_" + name + "_ms"] = Percentile(metric->values, 50);
    object["p99_" + name + "_ms"] = Percentile(metric->values, 99);
  }
  std::printf("%s\n", boost::json::serialize(object).c_str());
}

}  // namespace

int RunLoadBench(const LoadBenchOptions& options) {
  const absl::StatusOr<HttpUrl> url = HttpUrl::Parse(options.url);
  absl::StatusOr<std::vector<LoadRequest>> requests =
      options.trace.path.empty() ? MakeSynthetic(options.synthetic) : ReadTrace(options.trace);
  if (!url.ok() || !requests.ok()) {
    const absl::Status& status = url.ok() ? requests.status() : url.status();
    std::fprintf(stderr, "bench load: %s\n", status.ToString().c_str());
    return 2;
  }
  const HttpClient client(*url);
  for (int i = 0; i < options.n_warmup; ++i) {
    const Outcome out = RunOne(client, requests->front());
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
  if (options.json) PrintJson(options, sum, duration_s);
  return sum.failed == 0 ? 0 : 1;
}

}  // namespace baton
