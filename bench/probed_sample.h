// Samples of a benchmark, each between two short probes of what limits it. Shared machines change
// from one moment to the next: a share of a limit means something only where both were measured in
// the same state. So each sample is held to its own probes, and counts only
//
//   - if the limits by the probes before and after it are at most kMaxApart apart, and
//   - if it is not faster than the higher of the two.
//
// A line of the table is the median (by share) of the samples that count. It does not count itself
// if no more than half of its samples do.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bench/kernel_result.h"

namespace baton {

// Limits further apart are two states of the machine. Of two shared cores (Zen 4), probes before
// and after a sample differ by up to 2 % (peaks) and mostly 1 to 8 % (bandwidths, which jump by 20
// and more).
inline constexpr double kMaxApart = 1.10;

// A sample of one part, or of several with probes between them.
class ProbedSample {
 public:
  enum class Doubt { kNone, kTwoStates, kAboveLimit };

  // Adds a part that took `seconds`. min_before, min_after: the min seconds of the part by the
  // probes right before and right after it; 0: unknown.
  void Add(double seconds, double min_before, double min_after);

  double seconds() const { return seconds_; }
  double min_seconds() const { return min_; }        // by the faster probe of each part
  double share() const { return min_ / seconds_; }   // share of the limit reached, 0 to 1
  double min_before() const { return min_before_; }  // by the probes before the parts
  double min_after() const { return min_after_; }    // by the probes after the parts
  // kTwoStates: probes are too far apart around parts that took more than half of the time.
  Doubt doubt() const;

 private:
  double seconds_ = 0, min_ = 0, min_before_ = 0, min_after_ = 0;
  double seconds_of_two_states_ = 0;
};

// Fills in a line from its samples (at least one): value and limit are `work` / seconds.
void SetSamples(std::span<const ProbedSample> samples, double work, KernelResult* line);

struct SamplePlan {
  int min_samples = 7;
  double seconds = 1;  // more samples are taken until so much time has passed
};

// Takes samples of every body. For a sample the bodies run in turns for some milliseconds between
// two calls of min_seconds, which probes the min time of a run. The fastest run of a body counts,
// as the fastest try of a probe does.
std::vector<std::vector<ProbedSample>> SampleInTurns(
    const SamplePlan& plan, const std::vector<std::function<void()>>& bodies,
    const std::function<double()>& min_seconds);

}  // namespace baton
