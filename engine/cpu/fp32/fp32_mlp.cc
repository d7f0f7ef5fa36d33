#include "engine/cpu/fp32/fp32_mlp.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

// Marks the k greatest keys among the candidates; of equal keys the first.
std::vector<bool> Greatest(const std::vector<float>& keys, int k, std::vector<bool> candidates) {
  std::vector<bool> chosen(keys.size());
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (size_t j = 0; j < keys.size(); ++j) {
      if (candidates[j] && (best < 0 || keys[j] > keys[best])) best = static_cast<int>(j);
    }
    chosen[best] = true;
    candidates[best] = false;
  }
  return chosen;
}
std::vector<bool> All(size_t n) { return std::vector<bool>(n, true); }

// Marks the experts of the best groups.
std::vector<bool> OfBestGroups(const std::vector<float>& keys, const ExpertsDesc& experts) {
  const int size = experts.n / experts.groups;
  std::vector<float> scores(experts.groups);
  for (int group = 0; group < experts.groups; ++group) {
    const std::vector<float> own(keys.begin() + group * size, keys.begin() + (group + 1) * size);
    const std::vector<bool> counted = Greatest(own, experts.group_terms, All(own.size()));
    for (int i = 0; i < size; ++i) {
      if (counted[i]) scores[group] += own[i];
    }
  }
  const std::vector<bool> best = Greatest(scores, experts.chosen_groups, All(scores.size()));
  std::vector<bool> candidates(experts.n);
  for (int e = 0; e < experts.n; ++e) candidates[e] = best[e / size];
  return candidates;
}

// Converts a row's router logits to the weights of its experts: 0 for experts that are not chosen.
// corrections: empty: none.
void WeighExperts(const ExpertsDesc& experts, const std::vector<float>& corrections,
                  float* logits) {
  std::vector<float> keys(logits, logits + experts.n), scores = keys;
  const float greatest = *std::max_element(scores.begin(), scores.end());
  for (int e = 0; e < experts.n; ++e) {
    scores[e] = experts.sigmoid ? 1 / (1 + std::exp(-scores[e])) : std::exp(scores[e] - greatest);
    if (experts.sigmoid) keys[e] = scores[e];
    if (!corrections.empty()) keys[e] += corrections[e];
  }
  const std::vector<bool> chosen = Greatest(keys, experts.per_token, OfBestGroups(keys, experts));
  float sum = experts.sigmoid ? 1e-20f : 0;  // all sigmoids may be 0
  for (int e = 0; e < experts.n; ++e) {
    if (chosen[e] || (!experts.normalised && !experts.sigmoid)) sum += scores[e];
  }
  if (experts.sigmoid && !experts.normalised) sum = 1;
  const float scale = static_cast<float>(experts.scale);
  for (int e = 0; e < experts.n; ++e) logits[e] = chosen[e] ? scores[e] / sum * scale : 0;
}

}  // namespace

void Fp32Mlp::Run(int layer, const Matrix& x, Matrix& y) {
  const std::string name = absl::StrCat("layers.", layer, ".");
  if (model_.experts.is_sparse(layer)) return RunExperts(x, name, y);
  RunDense(x, name, model_.intermediate, y);
}

// y = the MLP `name` of this width, applied to x. y may be x.
void Fp32Mlp::RunDense(const Matrix& x, const std::string& name, int width, Matrix& y) {
  up_.Resize(x.rows(), width);
  weights_.Linear(x, name + "up", up_);
  if (model_.gated_mlp) {
    gate_.Resize(x.rows(), width);
    weights_.Linear(x, name + "gate", gate_);
    for (size_t i = 0; i < up_.data.size(); ++i) up_.data[i] *= Activate(gate_.data[i]);
  } else {
    for (float& value : up_.data) value = Activate(value);
  }
  weights_.Linear(up_, name + "down", y);
}

// y = the weighted sum of every row's experts, in ascending order, the shared expert last.
void Fp32Mlp::RunExperts(const Matrix& x, const std::string& name, Matrix& y) {
  const ExpertsDesc& experts = model_.experts;
  weights_of_experts_.Resize(x.rows(), experts.n);
  weights_.Linear(x, name + "router", weights_of_experts_);
  const std::vector<float> none;
  const std::vector<float>& corrections =
      experts.corrected ? weights_.At(name + "correction") : none;
  for (int64_t row = 0; row < x.rows(); ++row) {
    WeighExperts(experts, corrections, weights_of_experts_.row(row));
  }
  std::fill(y.data.begin(), y.data.end(), 0.0f);
  for (int expert = 0; expert < experts.n; ++expert) {
    AddExpert(x, absl::StrCat(name, "experts.", expert, "."), experts.intermediate,
              weights_of_experts_, expert, y);
  }
  if (experts.shared_intermediate == 0) return;
  shared_weights_.Resize(x.rows(), 1);
  std::fill(shared_weights_.data.begin(), shared_weights_.data.end(), 1.0f);
  if (experts.shared_gate) {
    weights_.Linear(x, name + "shared_gate", shared_weights_);
    for (float& weight : shared_weights_.data) weight = 1 / (1 + std::exp(-weight));
  }
  AddExpert(x, name + "shared.", experts.shared_intermediate, shared_weights_, 0, y);
}

// y += the expert `name` of this width, for the rows that give it a weight in `column`.
void Fp32Mlp::AddExpert(const Matrix& x, const std::string& name, int width, const Matrix& weights,
                        int column, Matrix& y) {
  std::vector<int32_t> rows;
  for (int64_t row = 0; row < weights.rows(); ++row) {
    // NaN counts as a weight
    if (weights.row(row)[column] != 0) rows.push_back(static_cast<int32_t>(row));
  }
  if (rows.empty()) return;
  expert_.Resize(static_cast<int64_t>(rows.size()), model_.hidden);
  x.Read(rows, expert_);
  RunDense(expert_, name, width, expert_);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float weight = weights.row(rows[i])[column];
    for (int j = 0; j < model_.hidden; ++j) y.row(rows[i])[j] += weight * expert_.row(i)[j];
  }
}

float Fp32Mlp::Activate(float x) const {
  constexpr float kRootOf2 = 1.41421356f, kRootOf2ByPi = 0.797884561f;
  switch (model_.activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x * (1 + std::erf(x / kRootOf2));
    case Activation::kGeluTanh:
      return 0.5f * x * (1 + std::tanh(kRootOf2ByPi * (x + 0.044715f * x * x * x)));
  }
  BATON_CHECK(false);
}

}  // namespace baton
