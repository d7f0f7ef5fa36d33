#include "planner/plan_offset.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kPlans = 32;    // of a kind that count
constexpr double kDoubt = 1;     // plans without an offset that count beside them
constexpr double kMinLeft = .5;  // of a prediction

}  // namespace

double PlanOffset::Of(Kind kind, double seconds) const {
  return std::max(records_[IndexOf(kind)].median, (kMinLeft - 1) * seconds);
}

// A median, because a prompt that others held up for long says nothing, and neither does
// one of them before any other. Errors are relative to the
// prediction, so a long prompt, whose costs are off by more seconds than all messages take, has
// little weight.
void PlanOffset::Add(Kind kind, double seconds, double took) {
  BATON_CHECK(seconds > 0 && took > 0);
  Record& record = records_[IndexOf(kind)];
  const Plan plan{.offset = took - seconds, .weight = 1 / seconds};
  if (record.plans.size() < kPlans)
    record.plans.push_back(plan);
  else
    record.plans[record.next] = plan;
  record.next = (record.next + 1) % kPlans;
  std::vector<Plan> ascending = record.plans;
  const auto less = [](const Plan& a, const Plan& b) { return a.offset < b.offset; };
  std::sort(ascending.begin(), ascending.end(), less);
  double weights = 0, below = 0;
  for (const Plan& each : ascending) weights += each.weight;
  const Plan doubt{.offset = 0, .weight = kDoubt * weights / static_cast<double>(ascending.size())};
  weights += doubt.weight;
  ascending.insert(std::upper_bound(ascending.begin(), ascending.end(), doubt, less), doubt);
  for (const Plan& each : ascending) {
    record.median = each.offset;
    if ((below += each.weight) >= weights / 2) break;
  }
}

}  // namespace baton
