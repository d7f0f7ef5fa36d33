// What prefill costs this worker, fitted to its steps as they are run, for the router to plan with.
// A plain object; engine thread.
#pragma once

#include <optional>

#include "planner/cost_fit.h"
#include "proto/messages.h"

namespace baton {

class PrefillMeter {
 public:
  // step_tokens: prompts are computed in steps of so many tokens. first: what is believed before
  // the first step, and of what steps do not show (long prompts, before there was one); nothing:
  // nothing.
  PrefillMeter(int n_layers, int step_tokens, const std::optional<PrefillCost>& first = {});

  // All layers of so many prompt tokens, which see so many pairs of query and key, took so long;
  // nothing else was computed meanwhile.
  void Add(double tokens, double pairs, double seconds);

  // Of whole prompts: what each step costs on top of its tokens is shared out to the tokens.
  PrefillFit fit() const;

 private:
  const int n_layers_, step_tokens_;
  // Without a first cost: from the first step on, which it begins with.
  std::optional<CostFit> fit_;
  int32_t n_tokens_ = 0;  // PrefillFit::n_tokens
};

}  // namespace baton
