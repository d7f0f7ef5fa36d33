// The picture of a load run, and the wait that shows how far a run is.
#include "bench/load/latency_plot.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "bench/load/run_progress.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

LoadSummary SummaryOf(std::vector<double> ttft, std::vector<double> itl) {
  LoadSummary sum;
  sum.completed = static_cast<int>(ttft.size());
  sum.duration_s = 10;
  sum.metrics = {{"ttft", Distribution(std::move(ttft))}, {"itl", Distribution(std::move(itl))}};
  return sum;
}

size_t Count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST_CASE("a plot has a panel for each distribution with its percentiles") {
  std::vector<double> ttft, itl;
  for (int i = 1; i <= 100; ++i) ttft.push_back(100.0 + i);
  for (int i = 0; i < 1000; ++i) itl.push_back(std::pow(10, i / 500.0));
  const std::string svg = LatencyPlot(SummaryOf(ttft, itl), "a < b & c");
  CHECK_THAT(svg, Contains("a &lt; b &amp; c: 100 requests answered, 0 failed, 10.0 s, 10.00"));
  CHECK_THAT(svg, Contains("Time to first token (TTFT), 100 values"));
  CHECK_THAT(svg, Contains("Gaps between tokens (ITL), 1000 values"));
  CHECK_THAT(svg, Contains("p50 150 ms") && Contains("p90 190 ms") && Contains("p99 199 ms"));
  CHECK(Count(svg, "class=\"mark\"") == 6);
  CHECK(Count(svg, "<rect") > 60);
  CHECK(Count(svg, "<text") == Count(svg, "</text>"));
  CHECK(Count(svg, "nan") == 0);
  CHECK(Count(svg, "inf") == 0);
}

TEST_CASE("a plot of nothing, of one value and of values without time is a picture too") {
  CHECK(Count(LatencyPlot(SummaryOf({}, {}), "x"), "no values") == 2);
  const std::string one = LatencyPlot(SummaryOf({5}, {0, 0, 0}), "x");
  CHECK_THAT(one, Contains("p50 5 ms") && Contains("p99 0 ms"));
  CHECK(Count(one, "<rect") == 2);
  CHECK(Count(one, "nan") == 0);
}

TEST_CASE("conversations add a panel: TTFT of later turns over what was cached") {
  SessionSummary sessions;
  for (int i = 0; i < 20; ++i)
    sessions.later.push_back({.cached = 0.05 + i / 20.0, .ttft_ms = 400.0 - 18 * i});
  const std::string svg = LatencyPlot(SummaryOf({5}, {1}), "x", &sessions);
  CHECK_THAT(svg, Contains("by the cached share of the prompt, 20 turns"));
  CHECK(Count(svg, "<circle") == 20);
  CHECK(Count(svg, "class=\"mark\"") == 6 + 10);  // a median for each tenth
  CHECK(Count(svg, "nan") == 0);
  CHECK(LaterTtfts(sessions, 0, .5).size() + LaterTtfts(sessions, .5, 2).size() == 20);
  const SessionSummary none;
  CHECK(Count(LatencyPlot(SummaryOf({5}, {1}), "x", &none), "no values") == 1);
}

TEST_CASE("a run's wait ends when enough have ended, or at its time") {
  RunProgress progress(3, 0);
  CHECK(progress.Await(0, absl::Now()));
  CHECK_FALSE(progress.Await(1, absl::Now() + absl::Milliseconds(20)));
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) progress.OneEnded();
  });
  CHECK(progress.Await(3, absl::InfiniteFuture()));
  other.join();
  CHECK_FALSE(progress.Await(4, absl::InfinitePast()));
}

}  // namespace
}  // namespace baton
