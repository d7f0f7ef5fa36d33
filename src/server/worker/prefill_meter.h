// What prefill costs this worker, fitted to its steps as they are run, for the router to plan with.
// A plain object; engine thread.
#pragma once

#include <optional>

#include "planner/cost_fit.h"
#include "proto/messages.h"

namespace baton {

class PrefillMeter {
 public:
  // step_tokens: prompts are computed in steps of so many tokens.
  PrefillMeter(int n_layers, int step_tokens) : n_layers_(n_layers), step_tokens_(step_tokens) {}

  // All layers of so many prompt tokens, which see so many pairs of query and key, took so long;
  // nothing else was computed meanwhile.
  void Add(double tokens, double pairs, double seconds);

  // Of whole prompts: what each step costs on top of its tokens is shared out to the tokens.
  PrefillFit fit() const;

 private:
  const int n_layers_, step_tokens_;
  std::optional<CostFit> fit_;  // from the first step on, which it begins with
};

}  // namespace baton
