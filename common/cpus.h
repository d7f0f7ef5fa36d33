// The CPUs of the machine that this process may use: the set of CPUs (affinity), and the time on
// them (the quota of a container or service). No other code in Baton asks the system for either.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cgroup.h"

namespace baton {

// Numbers of the CPUs that the calling thread may run on (threads that it starts later inherit the
// set), ascending; empty if the system does not tell.
std::vector<int> OwnCpus();
// Restricts the calling thread to these CPUs. False: none of them is available; nothing has
// changed.
bool StayOnCpus(const std::vector<int>& cpus);
// CPU that the caller runs on now; the scheduler may move it at any time. -1: unknown.
int CurrentCpu();

struct CpuAllowance {
  std::vector<int> cpus;          // result of OwnCpus
  std::optional<CpuQuota> quota;  // nullopt: the whole time of these CPUs

  // Number of compute threads that can run all the time, at least one: the number of CPUs, or of
  // whole CPUs in the quota if that is less. A fraction of a CPU gives no thread: two threads under
  // a quota of 1.5 CPUs use up the 150 ms of a period in 75 and then stand still for 25, and every
  // stream with them. One thread is never stopped, and the half is left for the process's other
  // threads (links, gRPC, HTTP). Two threads would compute prompts faster; a user who prefers that
  // sets `threads`. Below one CPU a single thread is stopped too: nothing less can compute.
  int threads() const;
  // True if the quota is less than the CPUs.
  bool is_bounded_by_quota() const;
  // True if `cpus_wanted` threads that run all the time would be stopped for part of it.
  bool exceeds_quota(int cpus_wanted) const;
  // Equal for processes that share the same CPUs of one machine or the same quota; 0: unknown.
  uint64_t group() const;
  // Fraction of the group's CPU time that `threads` compute threads take: 1 = all, more if the
  // threads are too many; 0: unknown.
  double share(int threads) const;
  // "96 CPUs by affinity, quota 4 CPUs".
  std::string Text() const;
};
// The allowance of the calling thread's process, read now.
CpuAllowance OwnCpuAllowance();

}  // namespace baton
