#include "common/metric_table.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace baton {
namespace {

struct Source {
  int waiting = 0;
  bool ready = false;
  uint64_t steps = 0;
  std::optional<double> seconds;
};

constexpr MetricDeclaration kTable[] = {
    {MetricKind::kGauge, "waiting", "requests", "model", "Requests."},
    {MetricKind::kGauge, "ready", "1 or 0", "model", "1: yes."},
    {MetricKind::kTotal, "steps_total", "steps", "model", "Steps."},
    {MetricKind::kCounter, "seconds_total", "seconds", "model", "Time."},
    {MetricKind::kHistogram, "seconds", "seconds", "stage model", "Times."},
    {MetricKind::kHistogram, "sizes", "tokens", "", "Sizes."},
    {MetricKind::kGauge, "about", "1", "pages", "About."}};
consteval const MetricDeclaration& Row(std::string_view name) { return FindMetric(kTable, name); }

constexpr double kSizes[] = {1, 2};

TEST_CASE("a row is a series from its declaration on, and takes its value from the source") {
  MetricsRegistry registry;
  const MetricLabels labels = {{"model", "m"}};
  MetricTable<Source> table(&registry, {{Row("waiting"), labels, &Source::waiting},
                                        {Row("ready"), labels, &Source::ready},
                                        {Row("steps_total"), labels, &Source::steps},
                                        {Row("seconds_total"), labels, &Source::seconds},
                                        {Row("seconds"),
                                         With(labels, {{"stage", "x"}}),
                                         [](const Source& source) { return source.seconds; },
                                         {1, 2}}});
  const auto has = [&](const std::string& line) {
    return ("\n" + registry.Text()).find("\n" + line + "\n") != std::string::npos;
  };
  CHECK(has("# HELP steps_total Steps."));
  CHECK(has("# TYPE steps_total counter"));
  CHECK(has("waiting{model=\"m\"} 0"));
  CHECK(has("steps_total{model=\"m\"} 0"));
  CHECK(has("seconds_count{model=\"m\",stage=\"x\"} 0"));

  Source source{.waiting = 3, .ready = true, .steps = 10, .seconds = 1.5};
  table.Take(source);
  CHECK(has("waiting{model=\"m\"} 3"));
  CHECK(has("ready{model=\"m\"} 1"));
  CHECK(has("steps_total{model=\"m\"} 10"));
  CHECK(has("seconds_total{model=\"m\"} 1.5"));
  CHECK(has("seconds_bucket{model=\"m\",stage=\"x\",le=\"1.0\"} 0"));
  CHECK(has("seconds_bucket{model=\"m\",stage=\"x\",le=\"2.0\"} 1"));

  // A total is given whole each time, a counter's value is added; nothing changes nothing.
  source = {.waiting = 1, .ready = false, .steps = 12, .seconds = std::nullopt};
  table.Take(source);
  CHECK(has("waiting{model=\"m\"} 1"));
  CHECK(has("ready{model=\"m\"} 0"));
  CHECK(has("steps_total{model=\"m\"} 12"));
  CHECK(has("seconds_total{model=\"m\"} 1.5"));
  CHECK(has("seconds_count{model=\"m\",stage=\"x\"} 1"));
  source.seconds = 0.25;
  table.Take(source);
  CHECK(has("steps_total{model=\"m\"} 12"));
  CHECK(has("seconds_total{model=\"m\"} 1.75"));
  CHECK(has("seconds_sum{model=\"m\",stage=\"x\"} 1.75"));
}

TEST_CASE("a histogram of counts shows all that a source has counted since its start") {
  MetricsRegistry registry;
  HistogramCounts counts{.bounds = kSizes};
  MetricTable<HistogramCounts> table(
      &registry, {MetricRow<HistogramCounts>::OfCounts(
                     Row("sizes"), {}, [](const auto& c) -> const auto& { return c; }, kSizes)});
  const auto has = [&](const std::string& line) {
    return ("\n" + registry.Text()).find("\n" + line + "\n") != std::string::npos;
  };
  CHECK(has("sizes_count 0"));
  for (const double size : {0.5, 1.0, 1.5, 9.0}) counts.Observe(size);
  for (int times = 0; times < 2; ++times) {  // looking twice adds nothing
    table.Take(counts);
    CHECK(has("sizes_bucket{le=\"1.0\"} 2"));  // a bound is inside
    CHECK(has("sizes_bucket{le=\"2.0\"} 3"));
    CHECK(has("sizes_bucket{le=\"+Inf\"} 4"));
    CHECK(has("sizes_sum 12"));
  }
  counts.Observe(2);
  table.Take(counts);
  CHECK(has("sizes_bucket{le=\"2.0\"} 4"));
  CHECK(has("sizes_count 5"));
}

TEST_CASE("what is told takes the place of what was told before") {
  MetricsRegistry registry;
  for (const char* pages : {"10", "10", "20"}) registry.Tell(Row("about"), {{"pages", pages}});
  CHECK(registry.Text() == "# HELP about About.\n# TYPE about gauge\nabout{pages=\"20\"} 1\n");
}

}  // namespace
}  // namespace baton
