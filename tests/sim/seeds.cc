#include "tests/sim/seeds.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/sim/tables.h"

namespace baton::sim {

SeedReport RunSeeds(const SeedRange& range) {
  const auto started = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next = range.first;
  std::mutex mutex;
  SeedReport report;
  const auto work = [&] {
    for (uint64_t seed = next++; seed <= range.last; seed = next++) {
      if (range.began) range.began(seed);
      Outcome outcome = RunSeed(seed);
      const bool twice = range.twice_every > 0 && seed % range.twice_every == 0;
      if (twice && outcome.violation.empty() && RunSeed(seed).digest != outcome.digest)
        outcome.violation = "two runs of the same seed differ";
      std::lock_guard lock(mutex);
      ++report.n_seeds;
      report.sum.Add(outcome);
      if (outcome.violation.empty()) continue;
      ++report.n_violations;
      if (range.violated) range.violated(outcome);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < range.threads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return report;
}

std::string SeedReport::ToString() const {
  const auto n = static_cast<double>(n_seeds), events = static_cast<double>(sum.n_events);
  return absl::StrFormat(
      "%d seeds, %d violations, %.1f seeds/s, %.0f events per seed, %.0f events/s\n%s%s", n_seeds,
      n_violations, n / seconds, events / n, events / seconds, sum.ToString(),
      TransitionReport(sum.transitions));
}

}  // namespace baton::sim
