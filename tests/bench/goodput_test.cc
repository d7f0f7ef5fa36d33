// Good requests of a load run, and the figures of an idle server that they are held to.
#include "bench/load/goodput.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "bench/load/idle_probe.h"
#include "bench/load/load_summary.h"

namespace baton {
namespace {

// A request answered with its first token after ttft_ms and the others after gaps.
Outcome Answered(double ttft_ms, const std::vector<double>& gaps_ms, int n_prompt = 100) {
  Outcome out;
  out.ok = true;
  out.n_prompt = n_prompt;
  out.n_output = static_cast<int>(gaps_ms.size()) + 1;
  out.sent = absl::UnixEpoch();
  absl::Time at = out.sent + absl::Milliseconds(ttft_ms);
  out.chunk_times.push_back(at);
  for (const double gap : gaps_ms) out.chunk_times.push_back(at += absl::Milliseconds(gap));
  out.ended = at;
  return out;
}

Outcome Cut(Outcome out, double after_ms) {
  out.ok = false;
  out.cut = true;
  out.ended = out.sent + absl::Milliseconds(after_ms);
  return out;
}

GoodputJudge Judge(const GoodputLimits& limits, const IdleFigures& idle = {}) {
  return GoodputJudge(limits, idle);
}

const IdleFigures kIdle{.ttft = {{100, 10}, {300, 50}, {500, 60}}, .step_ms = 4};

}  // namespace

TEST_CASE("one stall among a request's own gaps is seen, where their mean hides it") {
  std::vector<double> gaps(50, 10.0);
  gaps[20] = 1500;  // the mean of all gaps is below 40 ms
  CHECK(OwnGapMs(Answered(5, gaps)) > 700);
  const GoodputJudge judge = Judge({.ttft_ms = 100, .gap_ms = 100});
  CHECK(judge.Judge(Answered(5, gaps)) == Verdict::kBad);
  CHECK(judge.Judge(Answered(5, std::vector<double>(50, 10.0))) == Verdict::kGood);
  CHECK(OwnGapMs(Answered(5, {})) == 0);
  CHECK(judge.Judge(Answered(5, {})) == Verdict::kGood);
}

TEST_CASE("a first token is in time counted from when its request was due") {
  const GoodputJudge judge = Judge({.ttft_ms = 100, .gap_ms = 100});
  Outcome out = Answered(90, {1, 1});
  CHECK(judge.Judge(out) == Verdict::kGood);
  out.lag_ms = 11;
  CHECK(judge.Judge(out) == Verdict::kBad);
  out = Answered(1, {1});
  out.ok = false;  // failed
  CHECK(judge.Judge(out) == Verdict::kBad);
}

TEST_CASE("a request that the run's end has cut is bad if it broke a limit, else left out") {
  const GoodputJudge judge = Judge({.ttft_ms = 100, .gap_ms = 100});
  Outcome silent;
  silent.sent = absl::UnixEpoch();
  CHECK(judge.Judge(Cut(silent, 99)) == Verdict::kUnjudged);
  CHECK(judge.Judge(Cut(silent, 101)) == Verdict::kBad);
  CHECK(judge.Judge(Cut(Answered(50, {1, 2}), 2000)) == Verdict::kUnjudged);
  CHECK(judge.Judge(Cut(Answered(150, {1, 2}), 2000)) == Verdict::kBad);
  CHECK(judge.Judge(Cut(Answered(50, {1, 200}), 2000)) == Verdict::kBad);
  Outcome never_begun;
  never_begun.sent = never_begun.ended = absl::UnixEpoch();
  never_begun.cut = true;
  never_begun.lag_ms = 500;
  CHECK(judge.Judge(never_begun) == Verdict::kBad);
}

TEST_CASE("idle times are linear between the lengths that were measured") {
  CHECK(kIdle.TtftMs(100) == 10);
  CHECK(kIdle.TtftMs(200) == Approx(30));
  CHECK(kIdle.TtftMs(300) == 50);
  CHECK(kIdle.TtftMs(450) == Approx(57.5));
  CHECK(kIdle.TtftMs(1) == 10);  // beyond: the nearest length
  CHECK(kIdle.TtftMs(9000) == 60);
  const GoodputJudge judge = Judge({.ttft_x = 5, .gap_x = 3}, kIdle);
  CHECK(judge.TtftLimitMs(200) == Approx(150));
  CHECK(judge.GapLimitMs() == 12);
  CHECK(judge.Judge(Answered(149, {11, 11}, 200)) == Verdict::kGood);
  CHECK(judge.Judge(Answered(149, {11, 11}, 100)) == Verdict::kBad);
  CHECK(judge.Judge(Answered(149, {11, 13}, 200)) == Verdict::kBad);
}

TEST_CASE("idle figures are the same after a file, and a wrong file says what is wrong") {
  const auto again = ParseIdleJson(IdleJson(kIdle));
  REQUIRE(again.ok());
  CHECK(again->step_ms == 4);
  REQUIRE(again->ttft.size() == 3);
  CHECK(again->ttft[1].prompt_tokens == 300);
  CHECK(again->ttft[1].ttft_ms == 50);
  for (const char* wrong : {"", "[]", "{\"step_ms\": 1}", "{\"step_ms\": 1, \"ttft_ms\": []}",
                            "{\"step_ms\": 1, \"ttft_ms\": [[5, 1], [5, 2]]}",
                            "{\"step_ms\": 1, \"ttft_ms\": [[5]]}"}) {
    CHECK_FALSE(ParseIdleJson(wrong).ok());
  }
}

TEST_CASE("the lengths of the idle requests span those of the run") {
  IdleProbeOptions options{.min_prompt = 10, .max_prompt = 1000, .n_lengths = 5};
  CHECK(IdleLengths(options) == std::vector<int>{10, 32, 100, 316, 1000});
  options.max_prompt = 11;
  CHECK(IdleLengths(options) == std::vector<int>{10, 11});
  options.min_prompt = options.max_prompt;
  CHECK(IdleLengths(options) == std::vector<int>{11});
}

TEST_CASE("the summary counts good requests and tells their limits") {
  const GoodputJudge judge = Judge({.gap_ms = 20, .ttft_x = 5}, kIdle);
  Outcome failed = Answered(1, {});
  failed.ok = false;
  failed.error = "HTTP 429";
  const LoadSummary sum = Summarize(
      {Answered(40, {5, 5}), Answered(60, {5, 5}), failed, Cut(Answered(40, {5}), 60)}, judge, 2);
  CHECK(sum.completed == 2);
  CHECK(sum.failed == 1);
  CHECK(sum.cut == 1);
  CHECK(sum.judged == 3);
  CHECK(sum.good == 1);
  CHECK(sum.first_error == "request 2: HTTP 429");
  boost::json::object json;
  AddSummary(sum, judge, &json);
  CHECK(json.at("good_requests") == 1);
  CHECK(json.at("judged_requests") == 3);
  CHECK(json.at("good_percent").as_double() == Approx(100.0 / 3));
  CHECK(json.at("request_goodput").as_double() == 0.5);
  CHECK(json.at("goodput_ttft_x").as_double() == 5);
  CHECK(json.at("goodput_gap_ms").as_double() == 20);
  CHECK_FALSE(json.contains("goodput_ttft_ms"));
  CHECK(json.at("idle").at("step_ms").to_number<double>() == 4);
  CHECK(json.at("median_ttft_ms").as_double() == 50);
  CHECK(json.at("p99_own_gap_ms").as_double() == Approx(5));
  CHECK(LimitsInWords(judge) ==
        "ttft <= 5 x idle (10.0 ms of 100 tokens to 60.0 ms of 500), p99 of its own gaps <= 20 ms");
}

}  // namespace baton
