#include "planner/prompt_steps.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kRounding = 1e-9;

}  // namespace

void PromptSteps::Add(int64_t tokens, double pairs) {
  const auto count = static_cast<double>(tokens);
  work_ += cost_.Work(count, pairs);
  tokens_ += tokens;
  if (full_step_ <= 0)
    steps_ += 1;
  else if (count < shared_step())
    few_tokens_ += tokens;
  else {
    const double steps = std::ceil(count / full_step_ - kRounding);
    const double last = count - (steps - 1) * full_step_;
    steps_ += steps;
    lacking_ += static_cast<int64_t>(std::max(0.0, shared_step() - last));
  }
}

void PromptSteps::FillFrom(int64_t tokens, double pairs_of_token) {
  filler_tokens_ = tokens;
  filler_pairs_ = pairs_of_token;
}

double PromptSteps::shared_step() const {
  return full_step_ > 0 ? std::min<double>(kEnoughTokens, full_step_) : kEnoughTokens;
}

// Each step costs something of its own, which is shared out to the tokens of full ones
// (PrefillMeter).
PromptSeconds PromptSteps::seconds() const {
  const double few = std::ceil(static_cast<double>(few_tokens_) / shared_step() - kRounding);
  const double shared_out = full_step_ > 0 ? static_cast<double>(tokens_) / full_step_ : 0;
  const double of_step = cost_.Work(cost_.extra_tokens, 0);
  const double lacking =
      static_cast<double>(lacking_) + few * shared_step() - static_cast<double>(few_tokens_);
  const double filled = std::min(lacking, static_cast<double>(filler_tokens_));
  return {.work = work_,
          .alone = work_ + of_step * std::max(0.0, steps_ + few - shared_out) +
                   cost_.Work(filled, filled * filler_pairs_)};
}

}  // namespace baton
