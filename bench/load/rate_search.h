// Searches the highest arrival rate that a server takes with most requests good. Plain object: the
// caller probes the rate it asks for and tells the result; equal results give an equal search.
#pragma once

#include <optional>

namespace baton {

struct RateSearchOptions {
  double first = 1;          // rate of the first probe, requests per second
  double wanted_good = 0.9;  // share of the requests
  double precision = 0.1;    // ends when the lowest bad rate is at most so much above the best one
  double min_rate = 0;       // no lower rate is tried: a probe would have too few requests
  int max_probes = 10;
};

// Doubles the rate while it is good, or halves it while it is bad, until it lies between a good and
// a bad one; then halves the interval, by its logarithm.
class RateSearch {
 public:
  explicit RateSearch(const RateSearchOptions& options) : options_(options) {}

  std::optional<double> Next() const;     // rate to probe; none: the search has ended
  void Take(double good_share);           // result of the probe at Next()
  double found() const { return good_; }  // highest rate that was good; 0: none was
  // Whether a rate is known to be too high; otherwise the server may take more than found().
  bool is_bounded() const { return bad_ > 0; }

 private:
  RateSearchOptions options_;
  double good_ = 0, bad_ = 0;  // 0: none yet
  int n_probes_ = 0;
};

}  // namespace baton
