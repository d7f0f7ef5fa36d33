// Fits this worker's cost of steps with decode rows to its steps as they run, mixed ones among
// them: the router plans with it, and WorkerCore bounds mixed steps by it. A plain object; engine
// thread.
#pragma once

#include <optional>

#include "common/step_cost.h"
#include "planner/linear_fit.h"

namespace baton {

class StepMeter {
 public:
  // Adds a sample: a step of `rows` rows that read `keys` keys in all (rows and keys positive), and
  // of prompt tokens that would take prefill_seconds in steps of their own, took `seconds`.
  void Add(double rows, double keys, double prefill_seconds, double seconds);

  const StepCost& cost() const { return cost_; }  // not known before the first sample

 private:
  std::optional<LinearFit<4>> fit_;  // base, row, key, beside
  StepCost cost_;
};

}  // namespace baton
