#include "server/process/worker_placement.h"

#include <algorithm>
#include <set>

namespace baton {
namespace {

using Cpus = std::vector<int>;

// CPUs or threads of the decode workers together, and of the prefill workers together. Both are all
// there are if one role has no workers or there is only one.
struct Split {
  int decode = 0, prefill = 0;
};

Split SplitByRole(int n, int n_decode, int n_prefill) {
  if (n < 2 || n_decode == 0 || n_prefill == 0) return {n, n};
  const int decode = std::clamp(n * n_decode / (n_decode + n_prefill), 1, n - 1);
  return {decode, n - decode};
}

// Even shares, the first ones larger by one; all for everyone when there are too few.
std::vector<int> Shares(int n, int n_workers) {
  std::vector<int> shares;
  for (int i = 0; i < n_workers; ++i)
    shares.push_back(n < n_workers ? n : n / n_workers + (i < n % n_workers ? 1 : 0));
  return shares;
}

// The workers of a role on its CPUs; n_threads 0: as many as CPUs.
std::vector<CpuPlacement> Places(const Cpus& cpus, int n_threads, const WorkerConfig& config,
                                 int n_workers) {
  const int n_cpus = static_cast<int>(cpus.size());
  const std::vector<int> counts = Shares(n_cpus, n_workers), threads = Shares(n_threads, n_workers);
  std::vector<CpuPlacement> places;
  auto next = cpus.begin();
  for (size_t i = 0; i < counts.size(); ++i) {
    const Cpus own(next, next + counts[i]);
    if (n_cpus >= n_workers) next += counts[i];
    CpuPlacement place;
    place.cpus = config.cpus.empty() ? CpuListText(own) : config.cpus;
    // A list that cannot be read is refused by the worker, by name.
    const auto list = ParseCpuList(place.cpus);
    const int max_threads = list.ok() ? std::max(1, static_cast<int>(list->size())) : 1;
    place.threads = n_threads > 0 ? std::min(max_threads, threads[i]) : max_threads;
    if (config.threads > 0) place.threads = config.threads;
    places.push_back(std::move(place));
  }
  return places;
}

// Returns `count` of the CPUs, from CPU `from` on (from the first one if `from` is not among them)
// and around.
Cpus Run(const Cpus& cpus, int count, int from) {
  const auto found = std::find(cpus.begin(), cpus.end(), from);
  const size_t first = found == cpus.end() ? 0 : static_cast<size_t>(found - cpus.begin());
  Cpus run;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    run.push_back(cpus[(first + i) % cpus.size()]);
  std::sort(run.begin(), run.end());
  return run;
}

// CPUs that these workers can take at once: no more than their threads, nor than there are.
int CpusWanted(const Placement& placement) {
  int threads = 0;
  std::set<int> cpus;
  for (const auto* role : {&placement.decode, &placement.prefill}) {
    for (const CpuPlacement& place : *role) {
      threads += place.threads;
      const auto list = ParseCpuList(place.cpus);
      if (list.ok()) cpus.insert(list->begin(), list->end());
    }
  }
  return cpus.empty() ? threads : std::min(threads, static_cast<int>(cpus.size()));
}

bool Overlap(const Cpus& a, const Cpus& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::binary_search(b.begin(), b.end(), cpu); });
}

}  // namespace

Placement PlaceWorkers(const Config& config, const CpuAllowance& allowance, int near_cpu) {
  const int n_decode = config.decode.workers;
  const int n_prefill = config.cluster.colocated ? 0 : config.prefill.workers;
  Cpus cpus = allowance.cpus;
  Split threads;  // none: as CPUs
  if (allowance.is_bounded_by_quota() && allowance.threads() < n_decode + n_prefill) {
    cpus = Run(cpus, allowance.threads(), near_cpu);
  } else if (allowance.is_bounded_by_quota()) {
    threads = SplitByRole(allowance.threads(), n_decode, n_prefill);
  }
  const Split split = SplitByRole(static_cast<int>(cpus.size()), n_decode, n_prefill);
  Placement placement;
  placement.decode =
      Places({cpus.begin(), cpus.begin() + split.decode}, threads.decode, config.decode, n_decode);
  placement.prefill =
      Places({cpus.end() - split.prefill, cpus.end()}, threads.prefill, config.prefill, n_prefill);
  placement.exceeds_quota = allowance.exceeds_quota(CpusWanted(placement));
  return placement;
}

bool MaySpin(const Placement& placement, const CpuPlacement& place) {
  const auto own = ParseCpuList(place.cpus);
  if (!own.ok() || placement.exceeds_quota || place.threads > static_cast<int>(own->size()))
    return false;
  int users = 0;
  for (const auto* role : {&placement.decode, &placement.prefill}) {
    for (const CpuPlacement& other : *role) {
      const auto cpus = ParseCpuList(other.cpus);
      users += cpus.ok() && Overlap(*own, *cpus);
    }
  }
  return users == 1;
}

}  // namespace baton
