#include "common/cpus.h"

#include <sched.h>
#include <xxhash.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {

std::vector<int> OwnCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

bool StayOnCpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

uint64_t CpuGroup(const std::vector<int>& cpus) {
  std::string machine;  // of this boot
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  if (machine.empty() || cpus.empty()) return 0;
  const std::string group = absl::StrCat(machine, " ", absl::StrJoin(cpus, ","));
  return XXH3_64bits(group.data(), group.size());
}

}  // namespace baton
