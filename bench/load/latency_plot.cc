#include "bench/load/latency_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace baton {
namespace {

constexpr double kWidth = 760, kPanel = 250, kHead = 44;            // pixels of the picture
constexpr double kLeft = 56, kRight = 24, kTop = 46, kBottom = 34;  // around a panel's axes
constexpr int kBars = 60;
constexpr double kMinMs = 0.01;  // of an axis without a zero

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Ms(double ms) {
  if (ms >= 10000) return absl::StrFormat("%.0f s", ms / 1000);
  if (ms >= 1000) return absl::StrFormat("%.3g s", ms / 1000);
  return absl::StrFormat("%.3g ms", ms);
}

// A logarithmic axis from below the min value to above the max.
class Axis {
 public:
  explicit Axis(const std::vector<double>& sorted)
      : low_(std::log10(std::max(kMinMs, sorted.front())) - 0.05),
        high_(std::log10(std::max(kMinMs, sorted.back())) + 0.05) {}
  double Share(double ms) const {  // of the axis, from its low end
    return (std::log10(std::max(kMinMs, ms)) - low_) / (high_ - low_);
  }
  double X(double ms) const { return kLeft + Share(ms) * (kWidth - kLeft - kRight); }
  int BarOf(double ms) const {
    return std::clamp(static_cast<int>(Share(ms) * kBars), 0, kBars - 1);
  }
  // Values for the axis: 1, 2 and 5 times powers of ten; where they are too few, more of them.
  std::vector<double> Ticks() const {
    std::vector<double> best;
    for (const std::vector<double>& steps :
         {std::vector<double>{1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 6, 8}, {}}) {
      std::vector<double> ticks;
      for (double power = std::floor(low_); power <= high_; ++power) {
        for (const double step : steps) AddTick(step * std::pow(10, power), &ticks);
      }
      if (steps.empty()) {  // a narrow axis: four values between its ends
        for (int i = 0; i < 4; ++i)
          AddTick(std::pow(10, low_ + (high_ - low_) * (i + 0.5) / 4), &ticks);
      }
      best = std::move(ticks);
      if (best.size() >= 3) break;
    }
    return best;
  }

 private:
  void AddTick(double ms, std::vector<double>* ticks) const {
    if (std::log10(ms) >= low_ && std::log10(ms) <= high_) ticks->push_back(ms);
  }
  double low_, high_;
};

void AddText(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, Escaped(text));
}

void AddLine(double x1, double y1, double x2, double y2, const char* style, std::string* svg) {
  absl::StrAppendFormat(svg, "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s\"/>\n", x1, y1, x2, y2,
                        style);
}

// Marks p50, p90 and p99; their labels keep apart, from left to right.
void AddPercentiles(const Distribution& values, const Axis& axis, double top, double bottom,
                    std::string* svg) {
  double free_from = kLeft;
  for (const double percent : {50.0, 90.0, 99.0}) {
    const double ms = values.percentile(percent);
    const double x = axis.X(ms);
    const std::string label = absl::StrFormat("p%.0f %s", percent, Ms(ms));
    const double width = 6.6 * static_cast<double>(label.size()) + 10;
    const double at = std::clamp(x, free_from + width / 2, kWidth - width / 2);
    AddLine(x, top, x, bottom, "mark", svg);
    AddText(at, top - 6, "middle", label, svg);
    free_from = at + width / 2;
  }
}

void AddPanel(const std::string& title, const Distribution& values, double y, std::string* svg) {
  const double top = y + kTop, bottom = y + kPanel - kBottom;
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" class=\"title\">%s, %d values</text>\n",
                        kLeft, y + 16, Escaped(title), values.values.size());
  if (values.values.empty()) {
    AddText(kWidth / 2, (top + bottom) / 2, "middle", "no values", svg);
    return;
  }
  const Axis axis(values.values);
  std::array<size_t, kBars> counts{};
  for (const double ms : values.values) ++counts[static_cast<size_t>(axis.BarOf(ms))];
  const auto peak = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  const double width = (kWidth - kLeft - kRight) / kBars;
  for (size_t i = 0; i < kBars; ++i) {
    if (counts[i] == 0) continue;
    const double height =
        std::max(1.0, (bottom - top) * static_cast<double>(counts[i]) / peak);  // one is seen
    absl::StrAppendFormat(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                          kLeft + static_cast<double>(i) * width, bottom - height, width - 1,
                          height);
  }
  AddLine(kLeft, bottom, kWidth - kRight, bottom, "axis", svg);
  for (const double ms : axis.Ticks()) {
    AddLine(axis.X(ms), bottom, axis.X(ms), bottom + 5, "axis", svg);
    AddText(axis.X(ms), bottom + 19, "middle", Ms(ms), svg);
  }
  AddText(kLeft - 8, top + 10, "end", absl::StrFormat("%.0f", peak), svg);
  AddText(kLeft - 8, bottom, "end", "0", svg);
  AddPercentiles(values, axis, top, bottom, svg);
}

// Later turns of conversations: a dot each, and the median of each tenth of the axis.
void AddHits(const SessionSummary& sessions, double y, std::string* svg) {
  constexpr int kTenths = 10;
  const double top = y + kTop, bottom = y + kPanel - kBottom;
  absl::StrAppendFormat(
      svg,
      "<text x=\"%.1f\" y=\"%.1f\" class=\"title\">TTFT of later turns by the cached "
      "share of the prompt, %d turns</text>\n",
      kLeft, y + 16, sessions.later.size());
  if (sessions.later.empty()) {
    AddText(kWidth / 2, (top + bottom) / 2, "middle", "no values", svg);
    return;
  }
  const Axis axis(Distribution(LaterTtfts(sessions, 0, 2)).values);
  const auto x_of = [](double share) {
    return kLeft + std::min(share, 1.0) * (kWidth - kLeft - kRight);
  };
  const auto y_of = [&](double ms) { return bottom - axis.Share(ms) * (bottom - top); };
  for (const LaterTurn& turn : sessions.later)
    absl::StrAppendFormat(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", x_of(turn.cached),
                          y_of(turn.ttft_ms));
  AddLine(kLeft, bottom, kWidth - kRight, bottom, "axis", svg);
  AddLine(kLeft, top, kLeft, bottom, "axis", svg);
  for (int i = 0; i <= kTenths; i += 2)
    AddText(x_of(i / 10.0), bottom + 19, "middle", absl::StrFormat("%d %%", 10 * i), svg);
  for (const double ms : axis.Ticks()) {
    AddLine(kLeft - 5, y_of(ms), kLeft, y_of(ms), "axis", svg);
    AddText(kLeft - 8, y_of(ms) + 4, "end", Ms(ms), svg);
  }
  for (int i = 0; i < kTenths; ++i) {
    const double from = i / 10.0, to = i + 1 == kTenths ? 2 : (i + 1) / 10.0;
    const std::vector<double> ttfts = LaterTtfts(sessions, from, to);
    if (ttfts.empty()) continue;
    const double median = y_of(Distribution(ttfts).percentile(50));
    AddLine(x_of(from), median, x_of(to), median, "mark", svg);
  }
}

}  // namespace

std::string LatencyPlot(const LoadSummary& sum, const std::string& label,
                        const SessionSummary* sessions) {
  const auto values_of = [&](const char* name) -> Distribution {
    for (const LoadMetric& metric : sum.metrics)
      if (metric.name == name) return metric.values;
    return Distribution({});
  };
  const double height = kHead + (sessions == nullptr ? 2 : 3) * kPanel;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
      "%.0f\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<style>rect{fill:#3b78c2}circle{fill:#3b78c2;fill-opacity:.5}.axis{stroke:#555}.mark{stroke:"
      "#c2452d;stroke-dasharray:4 3}"
      ".title{font-weight:bold}</style>\n"
      "<path d=\"M0 0h%.0fv%.0fh-%.0fz\" fill=\"#fff\"/>\n",
      kWidth, height, kWidth, height, kWidth, height, kWidth);
  AddText(kLeft, 24, "start",
          absl::StrFormat("%s: %d requests answered, %d failed, %.1f s, %.2f requests/s", label,
                          sum.completed, sum.failed, sum.duration_s,
                          sum.duration_s > 0 ? sum.completed / sum.duration_s : 0),
          &svg);
  AddPanel("Time to first token (TTFT)", values_of("ttft"), kHead, &svg);
  AddPanel("Gaps between tokens (ITL)", values_of("itl"), kHead + kPanel, &svg);
  if (sessions != nullptr) AddHits(*sessions, kHead + 2 * kPanel, &svg);
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace baton
