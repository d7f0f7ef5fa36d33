// Fits this worker's cost of prefill to its steps as they run; the router plans with it. A plain
// object; engine thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

#include "engine/kv/kv_layout.h"
#include "engine/model/model_desc.h"
#include "planner/cost_fit.h"
#include "planner/prompt_steps.h"

namespace baton {

// The cost of prefill on such a layout before anything is measured: layers and KV bytes alone.
inline PrefillCost ShapeOfCost(const KvLayout& layout) {
  return {.n_layers = layout.n_layers(), .kv_bytes = static_cast<double>(layout.token_bytes())};
}

// Bounds of a step of prompts alone: a prompt that passes longer ones waits for the step under way.
struct PromptStep {
  absl::Duration time = absl::Milliseconds(100);
  int min_tokens = 128;  // in any case: fewer would be computed less well
  int enough_tokens = kEnoughTokens;
  int asking_tokens = kAskingTokens;
  int max_tokens = 512;
};

// Operations of attention per pair of a query and a key, over those of the linear layers per token;
// 0 for a model without sizes.
double PairShareOf(const ModelDesc& model);

class PrefillMeter {
 public:
  // shape: ShapeOfCost. step: what steps of prompts alone keep to.
  // pair_share: what a pair of a query and a key costs, as a share of a token in the linear layers,
  // as far as the model tells (PairShareOf); 0: unknown. Counts where steps tell little.
  // first: the cost until steps have shown another one, which for long prompts only a long prompt
  // does; empty: not known. CHECKs that `first` has the same number of layers.
  PrefillMeter(const PrefillCost& shape, const PromptStep& step, double pair_share = 0,
               const std::optional<PrefillCost>& first = {});

  // Adds a sample: all layers of `tokens` prompt tokens with `pairs` (query, key) pairs took
  // `seconds`, and nothing else was computed meanwhile.
  void Add(double tokens, double pairs, double seconds);

  // The cost of whole prompts: a step's fixed cost is shared out to its tokens.
  PrefillCost cost() const;
  // Tokens of a step of prompts alone, of so many pairs each; the least before anything is fitted.
  int StepTokens(double pairs) const;
  int32_t fitted_tokens() const { return fitted_tokens_; }  // as WorkerLoad tells them

 private:
  const PrefillCost shape_;
  const PromptStep step_;
  const double pair_share_;
  // Empty until the first step if no first cost was given.
  std::optional<CostFit> fit_;
  int32_t fitted_tokens_ = 0;
};

}  // namespace baton
