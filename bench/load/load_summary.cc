#include "bench/load/load_summary.h"

#include <xxhash.h>

#include <boost/json.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/idle_probe.h"

namespace baton {

LoadSummary Summarize(const std::vector<Outcome>& outcomes, const GoodputJudge& judge,
                      double duration_s) {
  LoadSummary sum;
  sum.duration_s = duration_s;
  std::vector<double> lag, ttft, second, itl, tpot, own_gap, e2el;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& out = outcomes[i];
    lag.push_back(out.lag_ms);
    const Verdict verdict = judge.Judge(out);
    if (verdict != Verdict::kUnjudged) ++sum.judged;
    if (verdict == Verdict::kGood) ++sum.good;
    if (out.cut) ++sum.cut;
    if (!out.ok && !out.cut && sum.failed++ == 0) {
      sum.first_error = absl::StrFormat("request %d: %s", i, out.error);
    }
    if (!out.ok) continue;
    ++sum.completed;
    sum.n_input += out.n_prompt;
    sum.n_output += out.n_output;
    ttft.push_back(out.ttft_ms());
    e2el.push_back(out.e2el_ms());
    if (out.second_gap_ms() >= 0) second.push_back(out.second_gap_ms());
    for (const double gap : out.itl_ms()) itl.push_back(gap);
    if (out.n_output > 1) tpot.push_back((e2el.back() - ttft.back()) / (out.n_output - 1));
    if (out.chunk_times.size() > 1) own_gap.push_back(OwnGapMs(out));
    sum.digest = XXH64(out.text.data(), out.text.size(), sum.digest);
  }
  sum.lag_p99_ms = Distribution(lag).percentile(99);
  sum.metrics = {{"ttft", Distribution(ttft)},       {"token2_gap", Distribution(second)},
                 {"itl", Distribution(itl)},         {"tpot", Distribution(tpot)},
                 {"own_gap", Distribution(own_gap)}, {"e2el", Distribution(e2el)}};
  return sum;
}

std::string LimitsInWords(const GoodputJudge& judge) {
  const GoodputLimits& limits = judge.limits();
  std::string words = "ttft <= ";
  if (limits.ttft_x > 0) {
    const IdleTtft &low = judge.idle().ttft.front(), &high = judge.idle().ttft.back();
    absl::StrAppendFormat(&words, "%g x idle (%.1f ms of %d tokens to %.1f ms of %d)",
                          limits.ttft_x, low.ttft_ms, low.prompt_tokens, high.ttft_ms,
                          high.prompt_tokens);
  } else {
    absl::StrAppendFormat(&words, "%g ms", limits.ttft_ms);
  }
  absl::StrAppend(&words, ", p99 of its own gaps <= ");
  if (limits.gap_x > 0) {
    absl::StrAppendFormat(&words, "%g idle steps of %.2f ms", limits.gap_x, judge.idle().step_ms);
  } else {
    absl::StrAppendFormat(&words, "%g ms", limits.gap_ms);
  }
  return words;
}

void PrintSummary(const LoadSummary& sum, const GoodputJudge& judge) {
  std::printf("  completed %d  failed %d  cut by the end %d  duration %.1f s\n", sum.completed,
              sum.failed, sum.cut, sum.duration_s);
  if (sum.failed > 0) std::printf("  first error: %s\n", sum.first_error.c_str());
  std::printf("  tokens: input %lld  output %lld  requests/s %.2f  output tok/s %.1f\n",
              static_cast<long long>(sum.n_input), static_cast<long long>(sum.n_output),
              sum.completed / sum.duration_s, static_cast<double>(sum.n_output) / sum.duration_s);
  std::printf("  good: %d of %d (%.1f %%), %.2f a second; %s\n", sum.good, sum.judged,
              100 * sum.good_share(), sum.good_per_s(), LimitsInWords(judge).c_str());
  std::printf("  %-12s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  for (const LoadMetric& metric : sum.metrics) {
    std::printf("  %-12s %10.2f %10.2f %10.2f %10.2f %10.2f\n", metric.name.c_str(),
                metric.values.mean(), metric.values.percentile(50), metric.values.percentile(90),
                metric.values.percentile(99), metric.values.percentile(100));
  }
  std::printf("  client start lag p99 %.2f ms  digest of all texts %016llx\n", sum.lag_p99_ms,
              static_cast<unsigned long long>(sum.digest));
}

void AddLimits(const GoodputJudge& judge, boost::json::object* object) {
  const GoodputLimits& limits = judge.limits();
  const bool ttft_x = limits.ttft_x > 0, gap_x = limits.gap_x > 0;
  (*object)[ttft_x ? "goodput_ttft_x" : "goodput_ttft_ms"] =
      ttft_x ? limits.ttft_x : limits.ttft_ms;
  (*object)[gap_x ? "goodput_gap_x" : "goodput_gap_ms"] = gap_x ? limits.gap_x : limits.gap_ms;
  if (!judge.idle().ttft.empty()) (*object)["idle"] = boost::json::parse(IdleJson(judge.idle()));
}

void AddSummary(const LoadSummary& sum, const GoodputJudge& judge, boost::json::object* object) {
  boost::json::object& json = *object;
  json["num_prompts"] = sum.completed + sum.failed + sum.cut;
  json["duration"] = sum.duration_s;
  json["completed"] = sum.completed;
  json["failed"] = sum.failed;
  json["cut"] = sum.cut;
  json["total_input_tokens"] = sum.n_input;
  json["total_output_tokens"] = sum.n_output;
  json["request_throughput"] = sum.completed / sum.duration_s;
  AddLimits(judge, object);
  json["judged_requests"] = sum.judged;
  json["good_requests"] = sum.good;
  json["good_percent"] = 100 * sum.good_share();
  json["request_goodput"] = sum.good_per_s();
  json["output_throughput"] = static_cast<double>(sum.n_output) / sum.duration_s;
  json["total_token_throughput"] = static_cast<double>(sum.n_input + sum.n_output) / sum.duration_s;
  json["client_lag_p99_ms"] = sum.lag_p99_ms;
  json["digest"] = absl::StrFormat("%016x", sum.digest);
  for (const LoadMetric& metric : sum.metrics) {
    json["mean_" + metric.name + "_ms"] = metric.values.mean();
    json["median_" + metric.name + "_ms"] = metric.values.percentile(50);
    json["p99_" + metric.name + "_ms"] = metric.values.percentile(99);
  }
}

}  // namespace baton
