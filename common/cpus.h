// How much of the machine's CPUs this process may use: which ones (affinity), and how much time on
// them (the quota of a container or service). Nothing else in Baton asks the system for either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cgroup.h"

namespace baton {

// CPUs that the calling thread may run on (threads it starts later inherit them): numbers,
// ascending; none where the system does not tell.
std::vector<int> OwnCpus();
// Only on these from now on. False: none of them can be had, and nothing has changed.
bool StayOnCpus(const std::vector<int>& cpus);
// The one the caller is on, from which the scheduler may move it any time; -1: nobody knows.
int CurrentCpu();

struct CpuAllowance {
  std::vector<int> cpus;          // as OwnCpus
  std::optional<CpuQuota> quota;  // nothing: all time of these CPUs

  // Compute threads that can run all the time, at least one: as many as CPUs, or as whole CPUs in
  // the quota if that is less. A fraction gives none: two threads under a quota of 1.5 CPUs use up
  // the 150 ms of a period in 75 and then stand still for 25, and every stream with them. One
  // thread is never stopped, and the half is there for the process's other threads (links, gRPC,
  // HTTP). Prompts would be computed faster by two; who wants that more says so (`threads`). Below
  // one CPU a single thread is stopped too: nothing less can compute.
  int threads() const;
  // The quota is less than the CPUs.
  bool is_bounded_by_quota() const;
  // Whether threads that want so many CPUs all the time are stopped for part of it.
  bool exceeds_quota(int cpus_wanted) const;
  // The same number for processes that share what bounds them, be it CPUs of one machine or a
  // quota; 0: nobody knows. And which part of that so many compute threads take, 1 = all of it.
  uint64_t group() const;
  double share(int threads) const;
  // "96 CPUs by affinity, quota 4 CPUs".
  std::string Text() const;
};
CpuAllowance OwnCpuAllowance();

}  // namespace baton
