// The registry of metrics of a process, with output in Prometheus' text form. prometheus-cpp counts
// and collects; Baton writes the text itself, because `le` must have the form of Python's client
// (le="1.0"), so that recording rules made for vLLM match. Series exist from their declaration on,
// so that rate() sees the first increment. One thread declares series; values and Text: any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace baton {

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
  void Observe(double value);

 private:
  prometheus::Histogram* histogram_;
};

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // A name may be declared with several label sets; the first declaration's help is used. The same
  // name and labels again give the same series. A name has one kind. Names and labels are valid for
  // Prometheus.
  CounterMetric Counter(const std::string& name, const std::string& help,
                        const MetricLabels& labels);
  GaugeMetric Gauge(const std::string& name, const std::string& help, const MetricLabels& labels);
  // bounds: upper bounds, ascending, without +Inf.
  HistogramMetric Histogram(const std::string& name, const std::string& help,
                            const MetricLabels& labels, const std::vector<double>& bounds);

  // The metrics as text: content type text/plain; version=0.0.4; charset=utf-8.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Histogram bounds, in seconds except TokenCountBounds: a superset of vLLM's, finer for CPUs and
// small models.
std::vector<double> TtftBounds();
std::vector<double> TokenLatencyBounds();          // ITL, TPOT
std::vector<double> RequestLatencyBounds();        // end to end, queue, prefill, decode
std::vector<double> StageBounds();                 // 1e-4 * 1.6^i, 30 of them
std::vector<double> TokenCountBounds(double max);  // 1, 2, 5 * 10^k

}  // namespace baton
