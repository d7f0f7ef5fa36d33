// Whether reasoning must end now (ReasoningBudget): the budget is used up, and the token that
// closes reasoning has not come. A function of the parameters and of the tokens generated so far.
// One thread at a time.
#pragma once

#include <cstdint>

#include "common/sampling_params.h"

namespace baton {

class ReasoningBound {
 public:
  // `budget` must outlive it.
  explicit ReasoningBound(const ReasoningBudget& budget)
      : budget_(budget),
        state_(!budget.is_set()   ? State::kAfter
               : budget.begin < 0 ? State::kInside
                                  : State::kBefore) {}

  // Takes the token that was generated now.
  void Push(int32_t token) {
    if (state_ == State::kBefore) {
      state_ = token == budget_.begin ? State::kInside : State::kAfter;
    } else if (state_ == State::kInside) {
      ++n_inside_;
      if (token == budget_.end) state_ = State::kAfter;
    }
  }
  bool must_end() const { return state_ == State::kInside && n_inside_ >= budget_.max_tokens; }

 private:
  enum class State { kBefore, kInside, kAfter };  // of reasoning; kBefore: before the first token

  const ReasoningBudget& budget_;
  State state_;
  int32_t n_inside_ = 0;  // tokens since it was opened
};

}  // namespace baton
