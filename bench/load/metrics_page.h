// A Prometheus text page as numbers.
#pragma once

#include <map>
#include <string>

#include "bench/load/http_client.h"
#include "common/status.h"

namespace baton {

class MetricsPage {
 public:
  static absl::StatusOr<MetricsPage> Fetch(const HttpUrl& url);
  explicit MetricsPage(const std::string& text);

  bool Has(const std::string& name) const { return sums_.contains(name); }
  double Sum(const std::string& name) const;  // over label sets; 0: the page lacks it
  // Returns what came since an earlier page of the same process: sums and histograms, not gauges.
  MetricsPage Since(const MetricsPage& before) const;
  // Returns the upper bound of the bucket with the share of a histogram's observations; 0: none.
  double Quantile(const std::string& histogram, double share) const;

 private:
  std::map<std::string, double> sums_;                       // key: name without labels
  std::map<std::string, std::map<double, double>> buckets_;  // name to bound to cumulative count
};

}  // namespace baton
