#include "bench/load/metrics_page.h"

#include <cstdlib>
#include <limits>
#include <sstream>

#include "absl/strings/str_format.h"

namespace baton {

absl::StatusOr<MetricsPage> MetricsPage::Fetch(const HttpUrl& url) {
  ClientLimits limits;
  limits.silence = limits.total = absl::Seconds(2);
  ASSIGN_OR_RETURN(const HttpResponse response, HttpClient(url, limits).Get("/metrics"));
  if (response.status != 200) {
    return absl::UnavailableError(absl::StrFormat("/metrics answers %d", response.status));
  }
  return MetricsPage(response.body);
}

MetricsPage::MetricsPage(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    if (space == std::string::npos) continue;
    const std::string name = line.substr(0, line.find_first_of("{ "));
    const double value = std::strtod(line.c_str() + space + 1, nullptr);
    sums_[name] += value;
    const size_t bound = line.rfind("le=\"");  // the last label; "role" ends so, too
    if (!name.ends_with("_bucket") || bound == std::string::npos) continue;
    const bool is_last = line.compare(bound + 4, 4, "+Inf") == 0;
    const double le = is_last ? std::numeric_limits<double>::infinity()
                              : std::strtod(line.c_str() + bound + 4, nullptr);
    buckets_[name][le] += value;
  }
}

double MetricsPage::Sum(const std::string& name) const {
  const auto found = sums_.find(name);
  return found == sums_.end() ? 0 : found->second;
}

MetricsPage MetricsPage::Since(const MetricsPage& before) const {
  MetricsPage since = *this;
  for (auto& [name, sum] : since.sums_) sum -= before.Sum(name);
  for (auto& [name, bounds] : since.buckets_)
    if (const auto old = before.buckets_.find(name); old != before.buckets_.end())
      for (const auto& [bound, count] : old->second) bounds[bound] -= count;
  return since;
}

double MetricsPage::Quantile(const std::string& histogram, double share) const {
  const auto found = buckets_.find(histogram + "_bucket");
  if (found == buckets_.end() || found->second.empty()) return 0;
  const double total = found->second.rbegin()->second;
  for (const auto& [bound, count] : found->second) {
    if (total > 0 && count >= share * total) return bound;
  }
  return 0;
}

}  // namespace baton
