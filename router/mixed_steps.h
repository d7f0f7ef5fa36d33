// Predicts what rows and prompts of one worker do to each other: while rows run, each step has a
// share for prompts, so prompts take longer and rows wait. Pure functions of the worker's fitted
// costs and of its rows; any thread.
#pragma once

#include <cstdint>

#include "common/step_cost.h"
#include "planner/prompt_steps.h"

namespace baton {

struct RowSums {
  int32_t rows = 0;
  int64_t keys = 0;         // tokens of their KV
  int64_t tokens_left = 0;  // expected

  void Add(const RowSums& other) {
    rows += other.rows;
    keys += other.keys;
    tokens_left += other.tokens_left;
  }
  double mean_left() const { return rows > 0 ? static_cast<double>(tokens_left) / rows : 0; }
};

class MixedSteps {
 public:
  // itl_stretch: as announced. min_share: work on prompts that a step has in any case.
  MixedSteps(const StepCost& cost, const RowSums& rows, double itl_stretch, double min_share);

  // Seconds that prompts take here: whole steps, since a token comes at the end of one.
  double Slowed(const PromptSeconds& prompts) const;
  // Seconds until the next step begins, on average; has_prompts: the one under way has some.
  double WaitForStep(bool has_prompts) const {
    return rows_.rows > 0 ? (plain_ + (has_prompts ? share_ : 0)) / 2 : 0;
  }
  // Work on prompts that is done in a second beside the rows.
  double rate() const { return rows_.rows > 0 ? rate_ : 1; }
  // The rows as they are after so many seconds with prompts beside them.
  RowSums After(double seconds) const;
  // Seconds that all rows lose by them, as long as they live.
  double Lost(double work) const;
  // Seconds that a row with so many tokens left loses.
  double LostBy(double tokens, double work) const;
  double MaxLostBy(double tokens) const { return tokens * share_; }  // to prompts without end

 private:
  StepCost cost_;
  RowSums rows_;
  double plain_, share_;  // seconds of a step: of its rows, and of prompts beside them
  double rate_;           // work done in a second
  double rows_end_;       // seconds, until the last of them is expected to end
};

}  // namespace baton
