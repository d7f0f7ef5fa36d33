// Declares series of a MetricsRegistry as a table: a row says what a series is called and which
// value of a source the series shows. A source is a state that is looked at now and then, or an
// event. A table belongs to one thread.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/metrics.h"

namespace baton {

enum class MetricKind {
  kGauge,      // is the value
  kCounter,    // grows by the value
  kTotal,      // a counter too; the value, which never falls, is the source's count since its start
  kHistogram,  // observes the value
};

template <typename Source>
class MetricRow {
 public:
  // Returns the value; nullopt leaves the series as it is. A pointer to a member of Source that is
  // a number serves too.
  using Value = std::function<std::optional<double>(const Source&)>;

  // bounds: upper bounds of a histogram, ascending, without +Inf.
  MetricRow(MetricKind kind, const char* name, const char* help, MetricLabels labels, Value value,
            std::vector<double> bounds = {})
      : kind_(kind),
        name_(name),
        help_(help),
        labels_(std::move(labels)),
        value_(std::move(value)),
        bounds_(std::move(bounds)) {}

  // Declares the series and returns the function that brings the series up to date. The registry
  // must outlive the function.
  std::function<void(const Source&)> Declare(MetricsRegistry* registry) const {
    switch (kind_) {
      case MetricKind::kGauge:
        return Fed([gauge = registry->Gauge(name_, help_, labels_)](double value) mutable {
          gauge.Set(value);
        });
      case MetricKind::kCounter:
        return Fed([counter = registry->Counter(name_, help_, labels_)](double value) mutable {
          counter.Add(value);
        });
      case MetricKind::kTotal:
        return Fed([counter = registry->Counter(name_, help_, labels_),
                    before = 0.0](double total) mutable {
          counter.Add(total - before);
          before = total;
        });
      case MetricKind::kHistogram:
        return Fed([histogram = registry->Histogram(name_, help_, labels_, bounds_)](
                       double value) mutable { histogram.Observe(value); });
    }
    return {};
  }

 private:
  template <typename Put>
  std::function<void(const Source&)> Fed(Put put) const {
    return [value = value_, put](const Source& source) mutable {
      if (const std::optional<double> now = value(source)) put(*now);
    };
  }

  MetricKind kind_;
  const char* name_;
  const char* help_;
  MetricLabels labels_;
  Value value_;
  std::vector<double> bounds_;
};

template <typename Source>
class MetricTable {
 public:
  // Declares all series: they exist from here on. The registry must outlive the table.
  MetricTable(MetricsRegistry* registry, const std::vector<MetricRow<Source>>& rows) {
    for (const MetricRow<Source>& row : rows) series_.push_back(row.Declare(registry));
  }

  // Brings all series up to date: called once per event, or before a state is shown.
  void Take(const Source& source) {
    for (auto& series : series_) series(source);
  }

 private:
  std::vector<std::function<void(const Source&)>> series_;
};

}  // namespace baton
