#include "planner/plan_offset.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kPlans = 32;    // of a kind that count
constexpr size_t kMinPlans = 2;  // one says nothing: others may have held it up
constexpr double kMinLeft = .5;  // of a prediction

}  // namespace

double PlanOffset::Of(Kind kind, double seconds) const {
  return std::max(records_[IndexOf(kind)].median, (kMinLeft - 1) * seconds);
}

// Takes a median, because a prompt that others held up for long says nothing. Errors are relative
// to the prediction, so a long prompt, whose costs are off by more seconds than all messages take,
// has little weight.
void PlanOffset::Add(Kind kind, double seconds, double took) {
  BATON_CHECK(seconds > 0 && took > 0);
  Record& record = records_[IndexOf(kind)];
  const Plan plan{.offset = took - seconds, .weight = 1 / seconds};
  if (record.plans.size() < kPlans)
    record.plans.push_back(plan);
  else
    record.plans[record.next] = plan;
  record.next = (record.next + 1) % kPlans;
  if (record.plans.size() < kMinPlans) return;
  std::vector<Plan> ascending = record.plans;
  std::sort(ascending.begin(), ascending.end(),
            [](const Plan& a, const Plan& b) { return a.offset < b.offset; });
  double weights = 0, below = 0;
  for (const Plan& each : ascending) weights += each.weight;
  for (const Plan& each : ascending) {
    record.median = each.offset;
    if ((below += each.weight) >= weights / 2) break;
  }
}

}  // namespace baton
