#include "worker/prefill_meter.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// A step of fewer tokens takes as long as reading the weights, whatever a token costs.
constexpr double kTellingTokens = 16;
// A first cost was fitted to prompts as long as any.
constexpr int32_t kFirstTokens = 1 << 20, kMaxTokens = 1 << 30;

}  // namespace

PrefillMeter::PrefillMeter(const PrefillCost& shape, const PromptStep& step,
                           const std::optional<PrefillCost>& first)
    : shape_(shape), step_(step) {
  BATON_CHECK(step.min_tokens > 0 && step.max_tokens > 0);
  if (!first) return;
  BATON_CHECK(first->n_layers == shape.n_layers);
  fit_.emplace(*first);
  fitted_tokens_ = kFirstTokens;
}

void PrefillMeter::Add(double tokens, double pairs, double seconds) {
  if (!(tokens > 0 && seconds > 0)) return;
  const double of_layer = seconds / shape_.n_layers;
  if (!fit_) {
    PrefillCost begin = shape_;
    begin.token = of_layer / tokens;
    fit_.emplace(begin);
  }
  fit_->Add(tokens, pairs, of_layer);
  if (tokens >= kTellingTokens)
    fitted_tokens_ = static_cast<int32_t>(std::min<double>(fitted_tokens_ + tokens, kMaxTokens));
}

PrefillCost PrefillMeter::cost() const {
  PrefillCost cost = shape_;
  if (!fit_) return cost;
  const PrefillCost& fitted = fit_->cost();
  const double step = fitted.token * fitted.extra_tokens;
  cost.token = fitted.token + step / StepTokens(0);
  cost.pair = fitted.pair;
  cost.extra_tokens = step / cost.token;
  return cost;
}

int PrefillMeter::StepTokens(double pairs) const {
  const double of_token = fit_ ? fit_->cost().Work(1, pairs) : 0;
  const double tokens = of_token > 0 ? absl::ToDoubleSeconds(step_.time) / of_token : 0;
  const int in_time = static_cast<int>(std::min<double>(tokens, step_.max_tokens));
  return std::min(std::max(step_.min_tokens, in_time), step_.max_tokens);
}

}  // namespace baton
