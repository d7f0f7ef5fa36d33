#include "bench/kernels/step_work.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

// Returns the parameters of the routed experts of all layers.
double ExpertParameters(const ModelDesc& model) {
  double parameters = 0;
  for (int layer = 0; layer < model.n_layers; ++layer) {
    if (model.experts.is_sparse(layer)) {
      parameters += 3.0 * model.hidden * model.experts.intermediate * model.experts.n;
    }
  }
  return parameters;
}

// Returns the multiply-adds of a token in those matrices of a layer that are bf16 in every model:
// the router of its experts, and the projections of queries to latents or of latents to values.
double RouterFlops(const ModelDesc& model, int layer) {
  return model.experts.is_sparse(layer) ? 2.0 * model.experts.n * model.hidden : 0;
}
double ToLatentFlops(const ModelDesc& model) {
  return 2.0 * model.n_heads * model.latent.plain_dim * model.latent.rank;
}
double FromLatentFlops(const ModelDesc& model) {
  return 2.0 * model.attended_width() * model.latent.rank;
}

}  // namespace

StepWork::StepWork(const ModelDesc& model, const KvLayout& layout, int64_t weight_bytes)
    : model_(model), layout_(layout), weight_bytes_(static_cast<double>(weight_bytes)) {
  const double head = 1.0 * model.vocab * model.hidden;
  // Includes norms and biases: a few in ten thousand.
  const double layers =
      static_cast<double>(model.n_parameters()) - (model.tied_embeddings ? 1 : 2) * head;
  const double experts = ExpertParameters(model);
  const double idle =
      model.experts.n > 0 ? 1.0 - 1.0 * model.experts.per_token / model.experts.n : 0.0;
  for (int layer = 0; layer < model.n_layers; ++layer) {
    token_bf16_flops_ += RouterFlops(model, layer);
    if (model.latent.rank > 0) token_bf16_flops_ += ToLatentFlops(model) + FromLatentFlops(model);
  }
  token_flops_ = 2 * (layers - experts * idle) - token_bf16_flops_;
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

// Adds the output projection and MLP of `tokens` tokens.
void StepWork::AddAfterAttention(int layer, double tokens, StepFlops* flops) const {
  double width = model_.attended_width();  // parameters / hidden
  if (model_.experts.is_sparse(layer)) {
    const ExpertsDesc& experts = model_.experts;
    width += 3.0 * (experts.per_token * experts.intermediate + experts.shared_intermediate);
  } else {
    width += (model_.gated_mlp ? 3.0 : 2.0) * model_.intermediate;
  }
  flops->layers += tokens * 2 * width * model_.hidden;
  flops->always_bf16 += tokens * RouterFlops(model_, layer);
  if (model_.latent.rank > 0) flops->always_bf16 += tokens * FromLatentFlops(model_);
}

double StepWork::KeysSeen(int layer, double keys) const {
  const int window = model_.windows[static_cast<size_t>(layer)];
  return window > 0 ? std::min<double>(keys, window) : keys;
}

// Returns the pairs of the first `end` tokens of a prompt together.
double StepWork::PairsSeen(int layer, double end) const {
  const double growing = KeysSeen(layer, end);  // tokens that see all earlier tokens
  return growing * (growing + 1) / 2 + (end - growing) * growing;
}

StepFlops StepWork::PrefillFlops(int first, int end, bool is_last) const {
  const int last = model_.n_layers - 1, tokens = end - first;
  StepFlops flops{.layers = tokens * token_flops_, .always_bf16 = tokens * token_bf16_flops_};
  AddAfterAttention(last, (is_last ? 1.0 : 0.0) - tokens, &flops);
  if (is_last) {
    flops.lm_head = head_flops_;
    flops.attention = KeysSeen(last, end) * PairFlops(last);
  }
  for (int layer = 0; layer < last; ++layer) {
    flops.attention += (PairsSeen(layer, end) - PairsSeen(layer, first)) * PairFlops(layer);
  }
  return flops;
}

StepFlops StepWork::DecodeFlops(int rows, double keys) const {
  StepFlops flops{.layers = rows * token_flops_,
                  .lm_head = rows * head_flops_,
                  .always_bf16 = rows * token_bf16_flops_};
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    flops.attention += rows * KeysSeen(layer, keys) * PairFlops(layer);
  }
  return flops;
}

double StepWork::DecodeBytes(int rows, double keys) const {
  double bytes = weight_bytes_;
  if (model_.experts.n > 0) {
    const double chosen = 1.0 * model_.experts.per_token / model_.experts.n;
    bytes *= 1 - expert_share_ * std::pow(1 - chosen, rows);  // without experts that no row chooses
  }
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const double token_bytes =
        static_cast<double>(layout_.planes[static_cast<size_t>(layer)].bytes) / layout_.page_tokens;
    bytes += rows * KeysSeen(layer, keys) * token_bytes;
  }
  return bytes;
}

}  // namespace baton
