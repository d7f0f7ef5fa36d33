#include "engine/experts_desc.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/json_fields.h"

namespace baton {
namespace {

// Above every published model, low enough for the ids of random weights (model_tensors.cc).
constexpr int64_t kMostExperts = 1024, kMostExpertsOfLayers = 1 << 17;
constexpr int64_t kMostWidth = 1 << 18;
constexpr int64_t kMostLayers = 1024;

// How many experts there are, in the field `name`, and how many a row chooses.
void ReadCounts(JsonFields& fields, std::string_view name, ExpertsDesc& experts) {
  const int64_t n_layers = static_cast<int64_t>(experts.sparse.size());
  experts.n = fields.Int(name, 1, std::min(kMostExperts, kMostExpertsOfLayers / n_layers));
  experts.per_token = fields.Int("num_experts_per_tok", 1, kMostPerToken);
  if (experts.per_token > experts.n) {
    fields.Refuse("num_experts_per_tok",
                  absl::StrFormat("it must be at most %s, %d", std::string(name), experts.n));
  }
}

void ReadMixtral(JsonFields& fields, ExpertsDesc& experts) {
  ReadCounts(fields, "num_local_experts", experts);
  experts.normalised = true;
}

// Layers whose number, counted from 1, is a multiple of decoder_sparse_step, but for those named.
void ReadQwen(JsonFields& fields, bool has_shared, ExpertsDesc& experts) {
  ReadCounts(fields, fields.Has("num_experts") ? "num_experts" : "num_local_experts", experts);
  experts.intermediate = fields.Int("moe_intermediate_size", 1, kMostWidth);
  experts.normalised = fields.BoolOr("norm_topk_prob", false);
  if (has_shared) {
    experts.shared_intermediate = fields.Int("shared_expert_intermediate_size", 1, kMostWidth);
    experts.shared_gate = true;
  }
  const int n_layers = static_cast<int>(experts.sparse.size());
  const int step = fields.IntOr("decoder_sparse_step", 1, 1, kMostLayers);
  for (int layer = 0; layer < n_layers; ++layer) experts.sparse[layer] = (layer + 1) % step == 0;
  for (const int layer : fields.IntsOr("mlp_only_layers", 0, kMostLayers)) {
    if (layer < n_layers) experts.sparse[layer] = false;
  }
}

void ReadDeepSeek(JsonFields& fields, ExpertsDesc& experts) {
  ReadCounts(fields, "n_routed_experts", experts);
  experts.intermediate = fields.Int("moe_intermediate_size", 1, kMostWidth);
  constexpr int kDefaultShared = 2;  // null: none
  const int shared = fields.IsNull("n_shared_experts")
                         ? 0
                         : fields.IntOr("n_shared_experts", kDefaultShared, 0, kMostPerToken);
  experts.shared_intermediate = experts.intermediate * shared;
  experts.scale = fields.NumberOr("routed_scaling_factor", 1, 1e-6, 1e6);
  const int dense = fields.IntOr("first_k_dense_replace", 0, 0, kMostLayers);
  std::fill_n(experts.sparse.begin(), std::min<size_t>(dense, experts.sparse.size()), false);
  if (fields.StringOr("topk_method", "greedy") != "greedy") {
    fields.Refuse("topk_method", "supported: greedy");
  }
  if (fields.StringOr("scoring_func", "softmax") != "softmax") {
    fields.Refuse("scoring_func", "supported: softmax");
  }
  if (fields.IntOr("moe_layer_freq", 1, 1, kMostLayers) != 1) {
    fields.Refuse("moe_layer_freq", "supported: 1");
  }
  // norm_topk_prob: transformers ignores it for this family.
}

}  // namespace

std::string ExpertsDesc::Canonical() const {
  if (n == 0) return "";
  return absl::StrFormat(" experts %d of %d mlp %d shared %d %d normalised %d scale %.17g in %s",
                         per_token, n, intermediate, shared_intermediate, shared_gate, normalised,
                         scale, absl::StrJoin(sparse, ","));
}

ExpertsDesc ReadExperts(JsonFields& fields, ExpertFields spelling, int n_layers, int intermediate) {
  ExpertsDesc experts;
  if (spelling == ExpertFields::kNone) return experts;
  experts.intermediate = intermediate;
  experts.sparse.assign(n_layers, true);
  switch (spelling) {
    case ExpertFields::kNone:
      break;
    case ExpertFields::kMixtral:
      ReadMixtral(fields, experts);
      break;
    case ExpertFields::kQwen2:
    case ExpertFields::kQwen3:
      ReadQwen(fields, spelling == ExpertFields::kQwen2, experts);
      break;
    case ExpertFields::kDeepSeek:
      ReadDeepSeek(fields, experts);
      break;
  }
  return experts;
}

}  // namespace baton
