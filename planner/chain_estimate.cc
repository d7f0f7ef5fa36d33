#include "planner/chain_estimate.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

double ChainSeconds(const PrefillCost& cost, const ChainLink& link, std::span<const double> slices,
                    double prefix, std::span<const double> speeds, double handed_on) {
  const size_t n_ranks = speeds.size();
  BATON_CHECK(!slices.empty() && slices.size() % n_ranks == 0);
  const bool in_rounds = slices.size() > n_ranks;
  double seconds = cost.head, before = prefix;
  for (; !slices.empty(); slices = slices.subspan(n_ranks)) {
    const std::span<const double> round = slices.first(n_ranks);
    double work = 0, tokens = 0;
    for (size_t i = 0; i < n_ranks; ++i) {
      work = std::max(work, cost.Layer(round[i], before + tokens) / speeds[i]);
      tokens += round[i];
    }
    before += tokens;
    // A chain's last link carries all slices but the last; a link of a ring carries all but the
    // receiver's.
    const double own = in_rounds ? *std::min_element(round.begin(), round.end()) : round.back();
    const double carried = std::exchange(handed_on, 0) + tokens - own;
    const double wire = cost.kv_bytes * carried / link.bytes_per_second;
    seconds += cost.n_layers * std::max(work, wire);
    if (n_ranks == 1) continue;
    if (slices.size() > n_ranks)
      seconds += wire / static_cast<double>(n_ranks - 1) + link.latency;
    else
      seconds += wire / 2 + static_cast<double>(n_ranks) * link.latency;
  }
  return seconds;
}

}  // namespace baton
