#include "planner/chain_estimate.h"

#include <algorithm>

#include "common/check.h"

namespace baton {

double ChainSeconds(const PrefillCost& cost, const ChainLink& link, std::span<const double> slices,
                    double prefix, std::span<const double> speeds) {
  CHECK(!slices.empty() && slices.size() == speeds.size());
  double work = 0, before = prefix;
  for (size_t i = 0; i < slices.size(); ++i) {
    work = std::max(work, cost.Layer(slices[i], before) / speeds[i]);
    before += slices[i];
  }
  if (slices.size() == 1) return cost.n_layers * work + cost.head;
  const double carried = before - prefix - slices.back();  // tokens over the last link
  const double wire = cost.kv_bytes * carried / link.bytes_per_second;
  const double latency = static_cast<double>(slices.size()) * link.latency;
  return cost.n_layers * std::max(work, wire) + wire / 2 + latency + cost.head;
}

}  // namespace baton
