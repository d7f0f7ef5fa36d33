#include "bench/load/workload.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace baton {
namespace {

constexpr uint64_t kRoundSeeds = 1000;  // between the seeds of a trace's rounds

void CutTo(double seconds, std::vector<LoadRequest>* requests) {
  if (seconds <= 0) return;
  const auto late = std::find_if(requests->begin(), requests->end(),
                                 [&](const LoadRequest& r) { return r.start_s >= seconds; });
  requests->erase(std::max(late, requests->begin() + 1), requests->end());  // one at least
}

std::vector<LoadRequest> Synthetic(const Workload& workload, uint64_t seed) {
  SyntheticOptions options = workload.synthetic;
  options.seed = seed;
  options.request_rate = workload.rate;
  if (workload.seconds > 0 && workload.rate > 0) {
    const double mean = workload.rate * workload.seconds;
    options.n_requests = static_cast<int>(std::ceil(mean + 6 * std::sqrt(mean) + 1));
  }
  std::vector<LoadRequest> requests = MakeSynthetic(options);
  CutTo(workload.seconds, &requests);
  return requests;
}

// One round of the trace, at the wanted rate.
absl::StatusOr<std::vector<LoadRequest>> Round(const Workload& workload, uint64_t seed) {
  TraceOptions options = workload.trace;
  options.seed = seed;
  ASSIGN_OR_RETURN(std::vector<LoadRequest> requests, ReadTrace(options));
  const double recorded = MeanRate(requests), first = requests.front().start_s;
  if ((workload.rate > 0 || workload.seconds > 0) && recorded <= 0) {
    return absl::InvalidArgumentError("trace " + options.path +
                                      ": its requests arrive at once; --spread or more --requests");
  }
  const double factor = workload.rate > 0 ? recorded / workload.rate : 1;
  for (LoadRequest& request : requests) request.start_s = (request.start_s - first) * factor;
  return requests;
}

}  // namespace

double MeanRate(const std::vector<LoadRequest>& requests) {
  const double span = requests.empty() ? 0 : requests.back().start_s - requests.front().start_s;
  return span > 0 ? static_cast<double>(requests.size() - 1) / span : 0;
}

absl::StatusOr<std::vector<LoadRequest>> MakeRequests(const Workload& workload, uint64_t seed) {
  if (workload.trace.path.empty()) return Synthetic(workload, seed);
  ASSIGN_OR_RETURN(std::vector<LoadRequest> requests, Round(workload, seed));
  const double mean_gap_s = workload.seconds > 0 ? 1 / MeanRate(requests) : 0;
  for (uint64_t round = 1; requests.back().start_s + mean_gap_s < workload.seconds; ++round) {
    const double begin_s = requests.back().start_s + mean_gap_s;
    ASSIGN_OR_RETURN(std::vector<LoadRequest> more, Round(workload, seed + round * kRoundSeeds));
    for (LoadRequest& request : more) request.start_s += begin_s;
    requests.insert(requests.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  }
  CutTo(workload.seconds, &requests);
  return requests;
}

}  // namespace baton
