#include "planner/plan_record.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewest = 0.25;     // weight of the newest prompt in the mean
constexpr double kForget = 1.0 / 8;  // share of the way back to the first margin, per other prompt
constexpr double kMinRatio = 1.0 / 64;  // 0 has no logarithm
constexpr int kAllLengths = 0;          // in place of a length in a key; no prompt has it

// Mixes logarithms, so that one prompt that others held up for long does not rule out its kind.
void Mix(double* mean, double value, double weight) { *mean *= std::pow(value / *mean, weight); }

}  // namespace

PlanRecord::Key PlanRecord::KeyOf(int tokens, int ranks) {
  return {std::bit_width(static_cast<unsigned>(tokens)), ranks};
}

double PlanRecord::At(const Key& key) const {
  const auto it = margins_.find(key);
  return it == margins_.end() ? FirstOf(key) : it->second;
}

// One worker is as late as it is with prompts of any length; a relay by a tenth more than one
// worker.
double PlanRecord::FirstOf(const Key& key) const {
  if (key.second > 1) return kFirstRelay * At({key.first, 1});
  return key.first == kAllLengths ? 1 : At({kAllLengths, 1});
}

void PlanRecord::Add(int tokens, int ranks, double ratio) {
  BATON_CHECK(tokens > 0 && ranks > 0 && ratio >= 0);
  const Key key = KeyOf(tokens, ranks);
  const auto add = [&](const Key& to) {
    Mix(&margins_.try_emplace(to, FirstOf(to)).first->second, std::max(ratio, kMinRatio), kNewest);
  };
  add(key);
  if (ranks == 1) add({kAllLengths, 1});
  for (auto it = margins_.lower_bound({key.first, 0});
       it != margins_.end() && it->first.first == key.first; ++it)
    if (it->first != key) Mix(&it->second, FirstOf(it->first), kForget);
}

}  // namespace baton
