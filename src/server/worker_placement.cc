#include <algorithm>

#include "server/supervisor.h"

namespace baton {
namespace {

using Cpus = std::vector<int>;

// Even shares, the first ones larger by one; all for everyone when there are too few.
std::vector<std::string> Share(const Cpus& cpus, int n_workers) {
  std::vector<std::string> shares;
  const int n_cpus = static_cast<int>(cpus.size());
  int next = 0;
  for (int i = 0; i < n_workers; ++i) {
    if (n_cpus < n_workers) {
      shares.push_back(CpuListText(cpus));
      continue;
    }
    const int count = n_cpus / n_workers + (i < n_cpus % n_workers ? 1 : 0);
    shares.push_back(CpuListText(Cpus(cpus.begin() + next, cpus.begin() + next + count)));
    next += count;
  }
  return shares;
}

bool Overlap(const Cpus& a, const Cpus& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::binary_search(b.begin(), b.end(), cpu); });
}

}  // namespace

bool SharesCpus(const Placement& placement, const std::string& cpus) {
  const absl::StatusOr<Cpus> own = ParseCpuList(cpus);
  int users = 0;
  for (const auto* role : {&placement.decode, &placement.prefill}) {
    for (const std::string& list : *role) {
      const absl::StatusOr<Cpus> other = ParseCpuList(list);
      users += own.ok() && other.ok() && Overlap(*own, *other);
    }
  }
  return users > 1;
}

Placement PlaceWorkers(const Config& config, const std::vector<int>& cpus) {
  const int n_decode = config.decode.workers;
  const int n_prefill = config.cluster.colocated ? 0 : config.prefill.workers;
  const int n_cpus = static_cast<int>(cpus.size());
  Cpus for_decode = cpus, for_prefill = cpus;
  if (n_cpus >= 2 && n_prefill > 0 && n_decode > 0) {
    const int n = std::clamp(n_cpus * n_decode / (n_decode + n_prefill), 1, n_cpus - 1);
    for_decode.resize(static_cast<size_t>(n));
    for_prefill.erase(for_prefill.begin(), for_prefill.begin() + n);
  }
  Placement placement;
  placement.decode = Share(for_decode, n_decode);
  placement.prefill = Share(for_prefill, n_prefill);
  if (!config.decode.cpus.empty()) {
    std::fill(placement.decode.begin(), placement.decode.end(), config.decode.cpus);
  }
  if (!config.prefill.cpus.empty()) {
    std::fill(placement.prefill.begin(), placement.prefill.end(), config.prefill.cpus);
  }
  return placement;
}

}  // namespace baton
