#include "planner/plan_record.h"

#include <bit>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewest = 0.25;      // weight of the newest prompt in the mean
constexpr double kForget = 1.0 / 32;  // share of the way back to the first margin, per other prompt

}  // namespace

PlanRecord::Key PlanRecord::KeyOf(int tokens, int ranks) {
  return {std::bit_width(static_cast<unsigned>(tokens)), ranks};
}

// A kind that has not been seen is as late as one worker is; a relay by a tenth more.
double PlanRecord::FirstOf(const Key& key) const {
  if (key.second == 1) return 1;
  const auto one = margins_.find({key.first, 1});
  return kFirstRelay * (one == margins_.end() ? 1 : one->second);
}

void PlanRecord::Add(int tokens, int ranks, double ratio) {
  BATON_CHECK(tokens > 0 && ranks > 0 && ratio >= 0);
  const Key key = KeyOf(tokens, ranks);
  margins_.try_emplace(key, FirstOf(key));
  for (auto it = margins_.lower_bound({key.first, 0});
       it != margins_.end() && it->first.first == key.first; ++it) {
    double& margin = it->second;
    if (it->first == key)
      margin += kNewest * (ratio - margin);
    else
      margin += kForget * (FirstOf(it->first) - margin);
  }
}

double PlanRecord::margin(int tokens, int ranks) const {
  const Key key = KeyOf(tokens, ranks);
  const auto it = margins_.find(key);
  return it == margins_.end() ? FirstOf(key) : it->second;
}

}  // namespace baton
