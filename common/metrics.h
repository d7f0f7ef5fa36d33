// The registry of metrics of a process, with output in Prometheus' text form. prometheus-cpp counts
// and collects; Baton writes the text itself, because `le` must have the form of Python's client
// (le="1.0"), so that recording rules made for vLLM match. Series exist from their declaration on,
// so that rate() sees the first increment. One thread declares series; values and Text: any thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/metric_declaration.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace baton {

struct HistogramCounts;

using MetricLabels = std::vector<std::pair<std::string, std::string>>;
// Returns `labels` followed by `more`.
MetricLabels With(MetricLabels labels, const MetricLabels& more);

// Handles of metrics: cheap to copy, valid as long as the registry.
class CounterMetric {
 public:
  explicit CounterMetric(prometheus::Counter* counter) : counter_(counter) {}
  void Add(double amount = 1);  // a negative amount is ignored

 private:
  prometheus::Counter* counter_;
};
class GaugeMetric {
 public:
  explicit GaugeMetric(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void Set(double value);

 private:
  prometheus::Gauge* gauge_;
};
class HistogramMetric {
 public:
  explicit HistogramMetric(prometheus::Histogram* histogram) : histogram_(histogram) {}
  void Observe(double value);  // takes a lock: for requests, not for tokens
  // Adds the values that `now` has more than `before`; the bounds of both are the histogram's.
  void Add(const HistogramCounts& now, const HistogramCounts& before);

 private:
  prometheus::Histogram* histogram_;
};

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // A name may be declared with several sets of values of its labels; the same again give the same
  // series. The labels are those of the declaration, and the kind is the function's.
  CounterMetric Counter(const MetricDeclaration& declaration, const MetricLabels& labels);
  GaugeMetric Gauge(const MetricDeclaration& declaration, const MetricLabels& labels);
  // bounds: upper bounds, ascending, without +Inf.
  HistogramMetric Histogram(const MetricDeclaration& declaration, const MetricLabels& labels,
                            const std::vector<double>& bounds);
  // A gauge that is 1 and whose labels are what it says: takes the place of what was told before
  // under this name.
  void Tell(const MetricDeclaration& declaration, const MetricLabels& labels);

  // The metrics as text: content type text/plain; version=0.0.4; charset=utf-8.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Histogram bounds, in seconds except TokenCountBounds: a superset of vLLM's, finer for CPUs and
// small models.
inline constexpr double kTokenLatencyBounds[] = {  // ITL, TPOT
    .0005, .001, .002, .003, .004, .005, .006, .0075, .01, .0125, .015,
    .02,   .025, .03,  .04,  .05,  .06,  .075, .1,    .15, .2,    .3,
    .4,    .5,   .75,  1,    2.5,  5,    7.5,  10,    20,  40,    80};
inline constexpr double kStepTokenBounds[] = {1,   2,   4,    8,    16,   32,   64,   128,
                                              256, 512, 1024, 2048, 4096, 8192, 16384};
inline constexpr std::array<double, 30> kStageBounds = [] {
  std::array<double, 30> bounds{};
  double bound = 1e-4;
  for (double& each : bounds) each = std::exchange(bound, bound * 1.6);
  return bounds;
}();
std::vector<double> TtftBounds();
std::vector<double> TokenLatencyBounds();
std::vector<double> RequestLatencyBounds();  // end to end, queue, prefill, decode
std::vector<double> StageBounds();
std::vector<double> TokenCountBounds(double max);  // 1, 2, 5 * 10^k

}  // namespace baton
