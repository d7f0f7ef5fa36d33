// Shares out the CPUs that this process may use among the workers that `baton serve` starts. Plain
// data and pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "common/cpus.h"
#include "server/config/config.h"

namespace baton {

struct CpuPlacement {
  std::string cpus;  // "0-3,8"; empty: all
  int threads = 1;   // compute threads
};

struct Placement {
  std::vector<CpuPlacement> decode, prefill;  // (workers of the role)
  // All workers computing at once exceed the quota: the kernel stops them now and then.
  bool exceeds_quota = false;
};

// Keeps the `cpus` and `threads` that the user set and chooses the others, for the CPUs and the
// quota in `allowance`:
// - CPUs: decoding has its own, prefill the others, each worker of a role an even share; workers of
//   a role that has fewer CPUs than workers share them all.
// - Threads: one per CPU; where a quota gives less time than the CPUs have, as many in all as it
//   has whole CPUs, shared out in the same way.
// - A quota with fewer whole CPUs than there are workers cannot give each a thread that runs all
//   the time. Then the workers stay on that many CPUs (from near_cpu on, because every container
//   of the machine would find CPU 0 first) and are placed as on a machine that has no others: there
//   decoding goes before prefill by priority, where a quota that is used up would stop both.
Placement PlaceWorkers(const Config& config, const CpuAllowance& allowance, int near_cpu);

// True if compute threads at this place may wait awake: no other worker uses the CPUs, each thread
// has a CPU, and waiting uses up no quota.
bool MaySpin(const Placement& placement, const CpuPlacement& place);

}  // namespace baton
