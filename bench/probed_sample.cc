#include "bench/probed_sample.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

// About as long as the probes around it, so that both meet the same disturbances.
constexpr double kSampleSeconds = 0.02;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

// Returns the median by share of the limit, or by speed where there is no limit.
const ProbedSample& MedianOf(std::vector<const ProbedSample*> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end(),
                   [](const ProbedSample* a, const ProbedSample* b) {
                     if (a->share() != b->share()) return a->share() < b->share();
                     return a->seconds() > b->seconds();
                   });
  return **middle;
}

}  // namespace

void ProbedSample::Add(double seconds, double min_before, double min_after) {
  const auto [min, max] = std::minmax(min_before, min_after);
  seconds_ += seconds;
  min_ += min;
  min_before_ += min_before;
  min_after_ += min_after;
  if (max > kMaxApart * min) seconds_of_two_states_ += seconds;
}

ProbedSample::Doubt ProbedSample::doubt() const {
  if (2 * seconds_of_two_states_ > seconds_) return Doubt::kTwoStates;
  return min_ > seconds_ ? Doubt::kAboveLimit : Doubt::kNone;
}

void SetSamples(std::span<const ProbedSample> samples, double work, KernelResult* line) {
  BATON_CHECK(!samples.empty());
  std::vector<const ProbedSample*> all, counted;
  std::vector<double> values, limits;
  size_t two_states = 0;
  for (const ProbedSample& sample : samples) {
    all.push_back(&sample);
    values.push_back(work / sample.seconds());
    if (sample.min_seconds() > 0) {
      limits.push_back(work / sample.min_before());
      limits.push_back(work / sample.min_after());
    }
    if (sample.doubt() == ProbedSample::Doubt::kNone) counted.push_back(&sample);
    if (sample.doubt() == ProbedSample::Doubt::kTwoStates) ++two_states;
  }
  const bool is_counted = 2 * counted.size() > all.size();
  const ProbedSample& median = MedianOf(is_counted ? counted : all);
  line->value = work / median.seconds();
  line->limit = median.min_seconds() > 0 ? work / median.min_seconds() : 0;
  line->seconds = median.seconds();
  line->n_samples = static_cast<int>(all.size());
  line->n_counted = static_cast<int>(counted.size());
  line->samples = SpreadOf(std::move(values));
  if (!limits.empty()) line->limits = SpreadOf(std::move(limits));
  line->not_counted.clear();
  if (is_counted) return;
  const size_t above = all.size() - counted.size() - two_states;
  line->not_counted = absl::StrFormat(
      "of %d samples the probes before and after %d differ by more than %.0f %%, and %d are above "
      "their limit",
      all.size(), two_states, 100 * (kMaxApart - 1), above);
}

std::vector<std::vector<ProbedSample>> SampleInTurns(
    const SamplePlan& plan, const std::vector<std::function<void()>>& bodies,
    const std::function<double()>& min_seconds) {
  std::vector<std::vector<ProbedSample>> samples(bodies.size());
  const Clock::time_point start = Clock::now();
  double before = min_seconds();
  for (int i = 0; i < std::max(plan.min_samples, 1) || SecondsSince(start) < plan.seconds; ++i) {
    std::vector<double> fastest(bodies.size(), 1e30);
    const Clock::time_point first = Clock::now();
    do {
      for (size_t body = 0; body < bodies.size(); ++body) {
        const Clock::time_point begin = Clock::now();
        bodies[body]();
        fastest[body] = std::min(fastest[body], SecondsSince(begin));
      }
    } while (SecondsSince(first) < kSampleSeconds);
    const double after = min_seconds();
    for (size_t body = 0; body < bodies.size(); ++body) {
      samples[body].emplace_back().Add(fastest[body], before, after);
    }
    before = after;
  }
  return samples;
}

}  // namespace baton
