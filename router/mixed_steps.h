// Predicts what rows and prompts of one worker do to each other: while rows run, each step has a
// share for prompts, so prompts take longer and rows wait. Pure functions of the worker's fitted
// costs and of its rows; any thread.
#pragma once

#include <cstdint>

#include "common/step_cost.h"

namespace baton {

struct RowSums {
  int32_t rows = 0;
  int64_t keys = 0;         // tokens of their KV
  int64_t tokens_left = 0;  // expected

  double mean_left() const { return rows > 0 ? static_cast<double>(tokens_left) / rows : 0; }
};

class MixedSteps {
 public:
  // itl_stretch: as announced. min_share: seconds of prompt tokens, in steps of their own, that a
  // step has in any case.
  MixedSteps(const StepCost& cost, const RowSums& rows, double itl_stretch, double min_share);

  // Seconds that prompts take here which take `work` seconds in steps of their own: whole steps,
  // since a token comes at the end of one.
  double Slowed(double work) const;
  // Seconds until the next step begins, on average.
  double WaitForStep() const { return rows_.rows > 0 ? plain_ / 2 : 0; }
  // Seconds that all rows lose by them, as long as they live.
  double Lost(double work) const;
  // Seconds that a row with so many tokens left loses.
  double LostBy(double tokens, double work) const;

 private:
  StepCost cost_;
  RowSums rows_;
  double plain_, share_;  // seconds of a step: of its rows, and of prompts beside them
  double rate_;           // seconds of work done in a second
  double rows_end_;       // seconds, until the last of them is expected to end
};

}  // namespace baton
