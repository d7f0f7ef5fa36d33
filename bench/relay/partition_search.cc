#include "bench/relay/partition_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"

namespace baton {
namespace {

constexpr int kGridValues = 5;  // values per boundary and level
constexpr int kPasses = 2;

// Slices by their boundaries 0 = b_0 < ... < b_ranks = tokens, and the best trial so far.
class Trial {
 public:
  Trial(const PartitionTime& time, std::vector<double> boundaries)
      : time_(time), boundaries_(std::move(boundaries)) {
    best_.seconds = std::numeric_limits<double>::infinity();
  }

  const std::vector<double>& best_boundaries() const { return boundaries_; }

  // True: these slices are the best so far. Does not try boundaries that do not ascend.
  bool Try(const std::vector<double>& boundaries) {
    std::vector<double> slices(boundaries.size() - 1);
    for (size_t i = 0; i < slices.size(); ++i) {
      slices[i] = boundaries[i + 1] - boundaries[i];
      if (slices[i] <= 0) return false;
    }
    ++best_.evaluations;
    const double seconds = time_(slices);
    if (!(seconds < best_.seconds)) return false;
    best_.seconds = seconds;
    best_.slices = std::move(slices);
    boundaries_ = boundaries;
    return true;
  }
  FoundPartition Take() { return std::move(best_); }

 private:
  const PartitionTime& time_;
  std::vector<double> boundaries_;
  FoundPartition best_;
};

// Tries every combination of the inner boundaries from `boundary` on, each at centre plus an
// offset.
void TryGrid(Trial& trial, const std::vector<double>& centre, double stride, size_t boundary,
             std::vector<double>& boundaries) {
  if (boundary + 1 == centre.size()) {
    trial.Try(boundaries);
    return;
  }
  for (int value = 0; value < kGridValues; ++value) {
    boundaries[boundary] = centre[boundary] + (value - kGridValues / 2) * stride;
    TryGrid(trial, centre, stride, boundary + 1, boundaries);
  }
}

// Runs one pass of a coordinate search. True: it improved.
bool ImproveOnce(Trial& trial, double stride) {
  bool improved = false;
  for (size_t i = 1; i + 1 < trial.best_boundaries().size(); ++i) {
    for (const double step : {-2 * stride, -stride, stride, 2 * stride}) {
      std::vector<double> boundaries = trial.best_boundaries();
      boundaries[i] += step;
      improved = trial.Try(boundaries) || improved;
    }
  }
  return improved;
}

}  // namespace

FoundPartition GridSearch(const PartitionTime& time, double tokens, int ranks, double min_stride) {
  BATON_CHECK(ranks >= 1 && tokens > 0 && min_stride > 0);
  std::vector<double> even(static_cast<size_t>(ranks) + 1);
  for (int i = 0; i <= ranks; ++i) even[static_cast<size_t>(i)] = tokens * i / ranks;
  Trial trial(time, even);
  double stride = tokens / ranks / (kGridValues - 1);
  while (true) {
    const std::vector<double> centre = trial.best_boundaries();
    std::vector<double> boundaries = centre;
    TryGrid(trial, centre, stride, 1, boundaries);
    if (stride <= min_stride) return trial.Take();
    stride = std::max(min_stride, stride / 2);
  }
}

FoundPartition CoordinateSearch(const PartitionTime& time, std::span<const double> start,
                                double min_stride) {
  BATON_CHECK(!start.empty() && min_stride > 0);
  std::vector<double> boundaries(start.size() + 1, 0.0);
  std::partial_sum(start.begin(), start.end(), boundaries.begin() + 1);
  Trial trial(time, boundaries);
  trial.Try(boundaries);
  double stride = std::max(min_stride, boundaries.back() / 16);
  while (true) {
    for (int pass = 0; pass < kPasses && ImproveOnce(trial, stride); ++pass) {
    }
    if (stride <= min_stride) return trial.Take();
    stride = std::max(min_stride, stride / 2);
  }
}

}  // namespace baton
