#include "common/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/histogram_counts.h"

namespace baton {
namespace {

std::string Shortest(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return Shortest(value);
}

// Formats like Python's prometheus_client: 1.0, 0.005, 2560.0, 1e+06.
std::string BoundText(double bound) {
  if (std::isinf(bound)) return "+Inf";
  if (bound >= 1e6) {
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, bound, std::chars_format::scientific);
    return {text, end.ptr};
  }
  std::string text = Shortest(bound);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Escaped(const std::string& text, bool with_quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && with_quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string LabelText(const std::vector<prometheus::ClientMetric::Label>& labels,
                      const std::string& le) {
  std::string text;
  for (const auto& label : labels) {
    absl::StrAppend(&text, text.empty() ? "" : ",", label.name, "=\"", Escaped(label.value, true),
                    "\"");
  }
  if (!le.empty()) absl::StrAppend(&text, text.empty() ? "" : ",", "le=\"", le, "\"");
  return text.empty() ? "" : absl::StrCat("{", text, "}");
}

void AppendHistogram(const std::string& name, const prometheus::ClientMetric& metric,
                     std::string* out) {
  const auto& histogram = metric.histogram;
  for (const auto& bucket : histogram.bucket) {
    absl::StrAppend(out, name, "_bucket", LabelText(metric.label, BoundText(bucket.upper_bound)),
                    " ", bucket.cumulative_count, "\n");
  }
  absl::StrAppend(out, name, "_count", LabelText(metric.label, ""), " ", histogram.sample_count,
                  "\n");
  absl::StrAppend(out, name, "_sum", LabelText(metric.label, ""), " ",
                  NumberText(histogram.sample_sum), "\n");
}

void AppendFamily(const prometheus::MetricFamily& family, std::string* out) {
  absl::StrAppend(out, "# HELP ", family.name, " ", Escaped(family.help, false), "\n");
  const bool is_counter = family.type == prometheus::MetricType::Counter;
  const bool is_histogram = family.type == prometheus::MetricType::Histogram;
  absl::StrAppend(out, "# TYPE ", family.name, " ",
                  is_counter ? "counter" : (is_histogram ? "histogram" : "gauge"), "\n");
  for (const auto& metric : family.metric) {
    if (is_histogram) {
      AppendHistogram(family.name, metric, out);
    } else {
      absl::StrAppend(out, family.name, LabelText(metric.label, ""), " ",
                      NumberText(is_counter ? metric.counter.value : metric.gauge.value), "\n");
    }
  }
}

prometheus::Labels LabelMap(const MetricLabels& labels) { return {labels.begin(), labels.end()}; }

std::vector<double> Merged(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

}  // namespace

MetricLabels With(MetricLabels labels, const MetricLabels& more) {
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

void CounterMetric::Add(double amount) { counter_->Increment(amount); }
void GaugeMetric::Set(double value) { gauge_->Set(value); }
void HistogramMetric::Observe(double value) { histogram_->Observe(value); }

void HistogramMetric::Add(const HistogramCounts& now, const HistogramCounts& before) {
  std::vector<double> more(now.bounds.size() + 1);
  for (size_t bucket = 0; bucket < more.size(); ++bucket)
    more[bucket] = static_cast<double>(now.counts[bucket] - before.counts[bucket]);
  histogram_->ObserveMultiple(more, now.sum - before.sum);
}

struct MetricsRegistry::State {
  template <typename Family, typename Build>
  Family& Find(std::map<std::string, Family*>& families, const MetricDeclaration& declaration,
               const MetricLabels& labels, Build build) {
    std::vector<std::string> names = absl::StrSplit(declaration.labels, ' ', absl::SkipEmpty());
    std::vector<std::string> given;
    for (const auto& [label, value] : labels) given.push_back(label);
    std::sort(names.begin(), names.end());
    std::sort(given.begin(), given.end());
    BATON_CHECK(names == given);
    Family*& family = families[declaration.name];
    if (family == nullptr)
      family = &build().Name(declaration.name).Help(declaration.help).Register(registry);
    return *family;
  }
  prometheus::Registry registry;
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  std::map<std::string, prometheus::Family<prometheus::Gauge>*> gauges;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histograms;
  std::map<std::string, std::pair<MetricLabels, prometheus::Gauge*>> told;  // by name
};

MetricsRegistry::MetricsRegistry() : state_(std::make_unique<State>()) {}
MetricsRegistry::~MetricsRegistry() = default;

CounterMetric MetricsRegistry::Counter(const MetricDeclaration& declaration,
                                       const MetricLabels& labels) {
  BATON_CHECK(declaration.kind == MetricKind::kCounter || declaration.kind == MetricKind::kTotal);
  auto& family = state_->Find(state_->counters, declaration, labels, prometheus::BuildCounter);
  return CounterMetric(&family.Add(LabelMap(labels)));
}

GaugeMetric MetricsRegistry::Gauge(const MetricDeclaration& declaration,
                                   const MetricLabels& labels) {
  BATON_CHECK(declaration.kind == MetricKind::kGauge);
  auto& family = state_->Find(state_->gauges, declaration, labels, prometheus::BuildGauge);
  return GaugeMetric(&family.Add(LabelMap(labels)));
}

HistogramMetric MetricsRegistry::Histogram(const MetricDeclaration& declaration,
                                           const MetricLabels& labels,
                                           const std::vector<double>& bounds) {
  BATON_CHECK(declaration.kind == MetricKind::kHistogram);
  auto& family = state_->Find(state_->histograms, declaration, labels, prometheus::BuildHistogram);
  return HistogramMetric(&family.Add(LabelMap(labels), bounds));
}

void MetricsRegistry::Tell(const MetricDeclaration& declaration, const MetricLabels& labels) {
  auto& family = state_->Find(state_->gauges, declaration, labels, prometheus::BuildGauge);
  auto& [told, gauge] = state_->told[declaration.name];
  if (gauge != nullptr && told == labels) return;
  if (gauge != nullptr) family.Remove(gauge);
  told = labels;
  gauge = &family.Add(LabelMap(labels));
  gauge->Set(1);
}

std::string MetricsRegistry::Text() const {
  std::string text;
  for (const prometheus::MetricFamily& family : state_->registry.Collect()) {
    AppendFamily(family, &text);
  }
  return text;
}

std::vector<double> TtftBounds() {
  return Merged({.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560},
                {.002, .003, .0075, .015, .03, .15, .35, 1.5, 3.5});
}

std::vector<double> TokenLatencyBounds() {
  return {std::begin(kTokenLatencyBounds), std::end(kTokenLatencyBounds)};
}

std::vector<double> RequestLatencyBounds() {
  return Merged(
      {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
      {.001, .005, .01, .025, .05, .1, .2});
}

std::vector<double> StageBounds() { return {kStageBounds.begin(), kStageBounds.end()}; }

std::vector<double> TokenCountBounds(double max) {
  std::vector<double> bounds;
  for (double power = 1; power <= max; power *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit * power <= max) bounds.push_back(digit * power);
    }
  }
  return bounds;
}

}  // namespace baton
