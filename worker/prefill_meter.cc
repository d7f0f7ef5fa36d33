#include "worker/prefill_meter.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// A step of fewer tokens takes as long as reading the weights, whatever a token costs.
constexpr double kTellingTokens = 16;
// Steps whose word the proportions of the model count for.
constexpr double kAnchor = .05;
// A first cost was fitted to prompts as long as any.
constexpr int32_t kFirstTokens = 1 << 20, kMaxTokens = 1 << 30;

}  // namespace

double PairShareOf(const ModelDesc& model) {
  const double embeddings = double{1} * model.vocab * model.hidden;
  const double outside = model.tied_embeddings ? embeddings : 2 * embeddings;
  const double linear = (static_cast<double>(model.n_parameters()) - outside) / model.n_layers;
  const double attention = model.q_width() + model.attended_width();
  return linear > 0 && attention > 0 ? attention / linear : 0;
}

PrefillMeter::PrefillMeter(const PrefillCost& shape, const PromptStep& step, double pair_share,
                           const std::optional<PrefillCost>& first)
    : shape_(shape), step_(step), pair_share_(pair_share) {
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
    begin.token = of_layer / (tokens + pair_share_ * pairs);
    begin.pair = pair_share_ * begin.token;
    fit_.emplace(begin, kAnchor);
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
