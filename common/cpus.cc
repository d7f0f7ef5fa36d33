#include "common/cpus.h"

#include <sched.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

// Quotas are rounded to whole microseconds of a period: 3.9999 CPUs are four.
constexpr double kRounding = 0.01;

// A set of the C library has room for 1024 CPUs; a system with more refuses to fill a single one.
constexpr size_t kCpuSets = 8;
constexpr size_t kMaxCpus = kCpuSets * CPU_SETSIZE;

}  // namespace

std::vector<int> OwnCpus() {
  cpu_set_t set[kCpuSets] = {};
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, set) != 0) return cpus;
  for (size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof set, set)) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

bool StayOnCpus(const std::vector<int>& cpus) {
  cpu_set_t set[kCpuSets] = {};
  for (const int number : cpus) {
    const auto cpu = static_cast<size_t>(number);
    if (cpu < kMaxCpus) CPU_SET_S(cpu, sizeof set, set);
  }
  return ::sched_setaffinity(0, sizeof set, set) == 0;
}

int CurrentCpu() { return ::sched_getcpu(); }

int CpuAllowance::threads() const {
  const int max = std::max(1, static_cast<int>(cpus.size()));
  if (!is_bounded_by_quota()) return max;
  return std::clamp(static_cast<int>(std::floor(quota->cpus + kRounding)), 1, max);
}

bool CpuAllowance::is_bounded_by_quota() const {
  return exceeds_quota(std::max(1, static_cast<int>(cpus.size())));
}

bool CpuAllowance::exceeds_quota(int cpus_wanted) const {
  return quota && quota->cpus + kRounding < cpus_wanted;
}

uint64_t CpuAllowance::group() const {
  std::string machine;  // id of the current boot
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  if (machine.empty()) return 0;
  const bool by_quota = is_bounded_by_quota();
  if (by_quota ? quota->group == 0 : cpus.empty()) return 0;
  const std::string group = by_quota ? absl::StrCat(machine, " quota ", quota->group)
                                     : absl::StrCat(machine, " ", absl::StrJoin(cpus, ","));
  return XXH3_64bits(group.data(), group.size());
}

double CpuAllowance::share(int threads) const {
  if (is_bounded_by_quota()) return threads / quota->cpus;
  return cpus.empty() ? 0 : threads / static_cast<double>(cpus.size());
}

std::string CpuAllowance::Text() const {
  const std::string by_affinity =
      absl::StrCat(cpus.size(), cpus.size() == 1 ? " CPU" : " CPUs", " by affinity");
  if (!quota) return absl::StrCat(by_affinity, ", no quota");
  return absl::StrFormat("%s, quota %.4g CPUs", by_affinity, quota->cpus);
}

CpuAllowance OwnCpuAllowance() { return {.cpus = OwnCpus(), .quota = OwnCpuQuota()}; }

}  // namespace baton
