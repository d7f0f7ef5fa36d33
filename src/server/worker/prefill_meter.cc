#include "server/worker/prefill_meter.h"

namespace baton {

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
}

PrefillFit PrefillMeter::fit() const {
  if (!fit_) return {};
  const PrefillCost& cost = fit_->cost();
  const double step_seconds = n_layers_ * cost.token * cost.extra_tokens;
  return {.token = n_layers_ * cost.token + step_seconds / step_tokens_,
          .pair = n_layers_ * cost.pair,
          .floor = step_seconds,
          .error = fit_->error(),
          .n_seen = fit_->n_layers_seen()};
}

}  // namespace baton
