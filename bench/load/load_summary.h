// Figures of a load run, as a table and as JSON with vLLM's field names.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/goodput.h"

namespace baton {

struct LoadMetric {
  std::string name;
  Distribution values;  // ms
};

struct LoadSummary {
  int completed = 0, failed = 0, cut = 0;
  int good = 0, judged = 0;
  int64_t n_input = 0, n_output = 0;  // tokens of completed requests
  std::vector<LoadMetric> metrics;    // own_gap: the 99th percentile of each request's own gaps
  double lag_p99_ms = 0;
  double duration_s = 0;
  uint64_t digest = 0;  // of all texts, in order of the requests
  std::string first_error;

  double good_share() const { return judged > 0 ? static_cast<double>(good) / judged : 0; }
  double good_per_s() const { return duration_s > 0 ? good / duration_s : 0; }
};

LoadSummary Summarize(const std::vector<Outcome>& outcomes, const GoodputJudge& judge,
                      double duration_s);

// The limits of a good request in words, with the figures they come from.
std::string LimitsInWords(const GoodputJudge& judge);

void PrintSummary(const LoadSummary& sum, const GoodputJudge& judge);
void AddSummary(const LoadSummary& sum, const GoodputJudge& judge, boost::json::object* object);
// Limits and idle figures alone.
void AddLimits(const GoodputJudge& judge, boost::json::object* object);

}  // namespace baton
