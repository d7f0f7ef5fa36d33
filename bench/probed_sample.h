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

  // A part that took `seconds` and, by the probes right before and right after it, needs at least
  // so many (0: nobody knows a limit).
  void Add(double seconds, double min_before, double min_after);

  double seconds() const { return seconds_; }
  double min_seconds() const { return least_; }       // by the faster probe of each part
  double share() const { return least_ / seconds_; }  // of the limit
  double min_before() const { return min_before_; }   // by the probes before each part
  double min_after() const { return min_after_; }     // and after it
  // Two states: the probes of parts that took more than half of its time are too far apart.
  Doubt doubt() const;

 private:
  double seconds_ = 0, least_ = 0, min_before_ = 0, min_after_ = 0;
  double seconds_of_two_states_ = 0;
};

// Fills in what a line has of its samples (one at least): value and limit are `work` by their
// seconds.
void SetSamples(std::span<const ProbedSample> samples, double work, KernelResult* line);

struct SamplePlan {
  int min_samples = 7;
  double seconds = 1;  // more samples are taken until so much time has passed
};

// Samples of every body. Of each, the bodies run in turns for some milliseconds between two calls
// of min_seconds, which probes what a run takes at least; of a body the fastest run counts, as
// of a probe the fastest try.
std::vector<std::vector<ProbedSample>> SampleInTurns(
    const SamplePlan& plan, const std::vector<std::function<void()>>& bodies,
    const std::function<double()>& min_seconds);

}  // namespace baton
