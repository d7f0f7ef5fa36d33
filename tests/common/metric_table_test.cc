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

TEST_CASE("a row is a series from its declaration on, and takes its value from the source") {
  MetricsRegistry registry;
  const MetricLabels labels = {{"model", "m"}};
  MetricTable<Source> table(
      &registry, {{MetricKind::kGauge, "waiting", "Requests.", labels, &Source::waiting},
                  {MetricKind::kGauge, "ready", "1: yes.", labels, &Source::ready},
                  {MetricKind::kTotal, "steps_total", "Steps.", labels, &Source::steps},
                  {MetricKind::kCounter, "seconds_total", "Time.", labels, &Source::seconds},
                  {MetricKind::kHistogram,
                   "seconds",
                   "Times.",
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

}  // namespace
}  // namespace baton
