// Other traffic on emulated links: the same model for those of real processes (paced_link.h) and
// for simulated ones (bench/relay/simulated_workers.h). Pure functions, any thread.
#pragma once

#include <cstdint>

namespace baton {

// Workers stand in a line, numbered from 0. Ports of one random pair of neighbours are slower by
// `factor`, in both directions; another pair every `period`. Deterministic in (seed, time).
struct LinkNoise {
  int workers = 0;  // of which neighbours are drawn; fewer than two: no noise
  double factor = 1;
  double period = 10e-3;  // seconds
  uint64_t seed = 0;

  bool is_set() const { return workers >= 2 && factor > 1; }
  // Returns the factor by which a worker's port is slower at this time. time: seconds from any
  // moment, the same one in all calls.
  double Longer(int worker, double time) const;
  // Returns the time at which a port ends a transfer that begins at `time` and takes `seconds`
  // without noise.
  double Through(int worker, double time, double seconds) const;
};

}  // namespace baton
