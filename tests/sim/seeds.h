// Runs a range of seeds on several threads, one run per thread at a time, and some seeds twice to
// check that a seed decides everything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/world.h"

namespace baton::sim {

struct SeedRange {
  uint64_t first = 1, last = 1;
  int threads = 2;
  uint64_t twice_every = 10;                     // 0: no seed runs twice
  std::function<void(uint64_t seed)> began;      // called on the thread of the run
  std::function<void(const Outcome&)> violated;  // called by one thread at a time
};

struct SeedReport {
  uint64_t n_seeds = 0, n_violations = 0;
  double seconds = 0;
  Outcome sum;
  std::string ToString() const;
};

SeedReport RunSeeds(const SeedRange& range);

}  // namespace baton::sim
