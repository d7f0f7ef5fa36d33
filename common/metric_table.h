// Declares series of a MetricsRegistry as a table: a row says which series (metric_declaration.h)
// shows which value of a source. A source is a state that is looked at now and then, or an
// event. A table belongs to one thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/histogram_counts.h"
#include "common/metrics.h"

namespace baton {

template <typename Source>
class MetricRow {
 public:
  // Returns the value; nullopt leaves the series as it is. A pointer to a member of Source that is
  // a number serves too.
  using Value = std::function<std::optional<double>(const Source&)>;
  // Returns the counts since the start of a histogram.
  using Counts = std::function<const HistogramCounts&(const Source&)>;

  // bounds: upper bounds of a histogram, ascending, without +Inf.
  MetricRow(const MetricDeclaration& declaration, MetricLabels labels, Value value,
            std::vector<double> bounds = {})
      : declaration_(&declaration),
        labels_(std::move(labels)),
        value_(std::move(value)),
        bounds_(std::move(bounds)) {}
  static MetricRow OfCounts(const MetricDeclaration& declaration, MetricLabels labels,
                            Counts counts, std::span<const double> bounds) {
    MetricRow row(declaration, std::move(labels), nullptr, {bounds.begin(), bounds.end()});
    row.counts_ = std::move(counts);
    return row;
  }

  // Declares the series and returns the function that brings the series up to date. The registry
  // must outlive the function.
  std::function<void(const Source&)> Declare(MetricsRegistry* registry) const {
    switch (declaration_->kind) {
      case MetricKind::kGauge:
        return Fed([gauge = registry->Gauge(*declaration_, labels_)](double value) mutable {
          gauge.Set(value);
        });
      case MetricKind::kCounter:
        return Fed([counter = registry->Counter(*declaration_, labels_)](double value) mutable {
          counter.Add(value);
        });
      case MetricKind::kTotal:
        return Fed([counter = registry->Counter(*declaration_, labels_),
                    before = 0.0](double total) mutable {
          counter.Add(total - before);
          before = total;
        });
      case MetricKind::kHistogram: {
        HistogramMetric histogram = registry->Histogram(*declaration_, labels_, bounds_);
        if (!counts_) return Fed([histogram](double value) mutable { histogram.Observe(value); });
        return [counts = counts_, histogram,
                before = HistogramCounts{}](const Source& source) mutable {
          const HistogramCounts& now = counts(source);
          histogram.Add(now, before);
          before = now;
        };
      }
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

  const MetricDeclaration* declaration_;
  MetricLabels labels_;
  Value value_;
  Counts counts_;
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
