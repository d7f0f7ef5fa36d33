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
  // How many times longer a worker's port takes at this time, in seconds from any moment on.
  double Longer(int worker, double time) const;
  // When a port is through with what it begins at `time` and would take `seconds` alone.
  double Through(int worker, double time, double seconds) const;
};

}  // namespace baton
