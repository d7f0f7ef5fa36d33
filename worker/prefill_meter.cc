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

PrefillMeter::PrefillMeter(int n_layers, int step_tokens, const std::optional<PrefillCost>& first)
    : n_layers_(n_layers), step_tokens_(step_tokens) {
  if (!first) return;
  BATON_CHECK(first->n_layers == n_layers);
  fit_.emplace(*first);
  n_tokens_ = kFirstTokens;
}

void PrefillMeter::Add(double tokens, double pairs, double seconds) {
  if (!(tokens > 0 && seconds > 0)) return;
  const double of_layer = seconds / n_layers_;
  if (!fit_) {
    PrefillCost begin;
    begin.n_layers = n_layers_;
    begin.token = of_layer / tokens;
    fit_.emplace(begin);
  }
  fit_->Add(tokens, pairs, of_layer);
  if (tokens >= kTellingTokens)
    n_tokens_ = static_cast<int32_t>(std::min<double>(n_tokens_ + tokens, kMaxTokens));
}

PrefillFit PrefillMeter::fit() const {
  if (!fit_) return {};
  const PrefillCost& cost = fit_->cost();
  const double step_seconds = n_layers_ * cost.token * cost.extra_tokens;
  return {.token = n_layers_ * cost.token + step_seconds / step_tokens_,
          .pair = n_layers_ * cost.pair,
          .floor = step_seconds,
          .error = fit_->error(),
          .n_seen = std::max(1, fit_->n_layers_seen()),  // a first cost is as good as one step
          .n_tokens = n_tokens_};
}

}  // namespace baton
