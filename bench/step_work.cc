#include "bench/step_work.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

// Of the routed experts of all layers.
double ExpertParameters(const ModelDesc& model) {
  double parameters = 0;
  for (int layer = 0; layer < model.n_layers; ++layer) {
    if (model.experts.is_sparse(layer)) {
      parameters += 3.0 * model.hidden * model.experts.intermediate * model.experts.n;
    }
  }
  return parameters;
}

}  // namespace

StepWork::StepWork(const ModelDesc& model, const KvLayout& layout, int64_t weight_bytes)
    : model_(model), layout_(layout), weight_bytes_(static_cast<double>(weight_bytes)) {
  const double head = 1.0 * model.vocab * model.hidden;
  // Norms and biases are in it: a few in ten thousand.
  const double layers =
      static_cast<double>(model.n_parameters()) - (model.tied_embeddings ? 1 : 2) * head;
  const double experts = ExpertParameters(model);
  const double idle =
      model.experts.n > 0 ? 1.0 - 1.0 * model.experts.per_token / model.experts.n : 0.0;
  token_flops_ = 2 * (layers - experts * idle);
  head_flops_ = 2 * head;
  expert_share_ = experts / (layers + head);
}

double StepWork::PairFlops(int layer) const {
  const KvShape& shape = layout_.shape(layer);
  return 2.0 * model_.n_heads * (shape.key_dim + shape.value_dim);
}

double StepWork::pair_flops() const {
  double flops = 0;
  for (int layer = 0; layer < model_.n_layers; ++layer) flops += PairFlops(layer);
  return flops;
}

// Output projection and MLP of one token.
double StepWork::AfterAttentionFlops(int layer) const {
  double width = model_.attended_width();  // the parameters are so many by `hidden`
  if (model_.experts.is_sparse(layer)) {
    const ExpertsDesc& experts = model_.experts;
    width += experts.n + 3.0 * (experts.per_token * experts.intermediate +  // the router first
                                experts.shared_intermediate);
  } else {
    width += (model_.gated_mlp ? 3.0 : 2.0) * model_.intermediate;
  }
  double flops = 2 * width * model_.hidden;
  if (model_.latent.rank > 0) flops += 2.0 * model_.attended_width() * model_.latent.rank;
  return flops;
}

double StepWork::KeysSeen(int layer, double keys) const {
  const int window = model_.windows[static_cast<size_t>(layer)];
  return window > 0 ? std::min<double>(keys, window) : keys;
}

StepFlops StepWork::PrefillFlops(int n) const {
  const int last = model_.n_layers - 1;
  StepFlops flops{.linear = n * token_flops_ + head_flops_ - (n - 1) * AfterAttentionFlops(last),
                  .attention = KeysSeen(last, n) * PairFlops(last)};
  for (int layer = 0; layer < last; ++layer) {
    const double growing = KeysSeen(layer, n);  // tokens that see all before them
    const double pairs = growing * (growing + 1) / 2 + (n - growing) * growing;
    flops.attention += pairs * PairFlops(layer);
  }
  return flops;
}

StepFlops StepWork::DecodeFlops(int rows, double keys) const {
  StepFlops flops{.linear = rows * (token_flops_ + head_flops_)};
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    flops.attention += rows * KeysSeen(layer, keys) * PairFlops(layer);
  }
  return flops;
}

double StepWork::DecodeBytes(int rows, double keys) const {
  double bytes = weight_bytes_;
  if (model_.experts.n > 0) {
    const double chosen = 1.0 * model_.experts.per_token / model_.experts.n;
    bytes *= 1 - expert_share_ * std::pow(1 - chosen, rows);  // less what nobody chooses
  }
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const double token_bytes =
        static_cast<double>(layout_.planes[static_cast<size_t>(layer)].bytes) / layout_.page_tokens;
    bytes += rows * KeysSeen(layer, keys) * token_bytes;
  }
  return bytes;
}

}  // namespace baton
