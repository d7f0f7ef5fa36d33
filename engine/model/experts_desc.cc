#include "engine/model/experts_desc.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/model/json_fields.h"

namespace baton {
namespace {

constexpr int64_t kMaxExpertsOfLayers = 1 << 17;  // room in the ids of random weights
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxLayers = 1024;

// Reads the number of experts from the field `name`, and the number chosen per row.
void ReadCounts(JsonFields& fields, std::string_view name, ExpertsDesc& experts) {
  const int64_t n_layers = static_cast<int64_t>(experts.sparse.size());
  experts.n = fields.Int(name, 1, std::min<int64_t>(kMaxExperts, kMaxExpertsOfLayers / n_layers));
  experts.per_token = fields.Int("num_experts_per_tok", 1, kMaxPerToken);
  if (experts.per_token > experts.n) {
    fields.Refuse("num_experts_per_tok",
                  absl::StrFormat("it must be at most %s, %d", std::string(name), experts.n));
  }
}

void ReadMixtral(JsonFields& fields, ExpertsDesc& experts) {
  ReadCounts(fields, "num_local_experts", experts);
  experts.normalised = true;
}

// Sparse layers: those whose number, counted from 1, is a multiple of decoder_sparse_step, except
// the layers named in mlp_only_layers.
void ReadQwen(JsonFields& fields, bool has_shared, ExpertsDesc& experts) {
  ReadCounts(fields, fields.Has("num_experts") ? "num_experts" : "num_local_experts", experts);
  experts.intermediate = fields.Int("moe_intermediate_size", 1, kMaxWidth);
  experts.normalised = fields.BoolOr("norm_topk_prob", false);
  if (has_shared) {
    experts.shared_intermediate = fields.Int("shared_expert_intermediate_size", 1, kMaxWidth);
    experts.shared_gate = true;
  }
  const int n_layers = static_cast<int>(experts.sparse.size());
  const int step = fields.IntOr("decoder_sparse_step", 1, 1, kMaxLayers);
  for (int layer = 0; layer < n_layers; ++layer) experts.sparse[layer] = (layer + 1) % step == 0;
  for (const int layer : fields.IntsOr("mlp_only_layers", 0, kMaxLayers)) {
    if (layer < n_layers) experts.sparse[layer] = false;
  }
}

// Defaults of fields that configs of the two versions omit, from transformers' classes.
struct DeepSeekDefaults {
  int shared, dense_layers, groups, chosen_groups;
  double scale;
};

// Reads groups of equal size that have enough experts to choose from.
void ReadGroups(JsonFields& fields, const DeepSeekDefaults& defaults, ExpertsDesc& experts) {
  experts.groups = fields.IntOr("n_group", defaults.groups, 1, kMaxExperts);
  experts.chosen_groups = fields.IntOr("topk_group", defaults.chosen_groups, 1, kMaxExperts);
  const int size = experts.n / experts.groups;
  if (experts.n % experts.groups != 0 || size < experts.group_terms) {
    fields.Refuse("n_group", absl::StrFormat("it must divide n_routed_experts, %d, into groups of "
                                             "at least %d",
                                             experts.n, experts.group_terms));
  } else if (experts.chosen_groups > experts.groups ||
             experts.chosen_groups * size < experts.per_token) {
    fields.Refuse("topk_group",
                  absl::StrFormat("it must be at most n_group, %d, and give a row "
                                  "num_experts_per_tok, %d, to choose from, %d of a group",
                                  experts.groups, experts.per_token, size));
  }
}

void RefuseUnless(JsonFields& fields, std::string_view field, std::string_view value) {
  if (fields.StringOr(field, value) != value) {
    fields.Refuse(field, absl::StrFormat("supported: %s", std::string(value)));
  }
}

// Version 2: the greatest scores of a softmax, in groups by their greatest score. norm_topk_prob is
// not read: transformers ignores it.
void ReadDeepSeekV2Routing(JsonFields& fields, const DeepSeekDefaults& defaults,
                           ExpertsDesc& experts) {
  const std::string method = fields.StringOr("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    ReadGroups(fields, defaults, experts);
  } else if (method != "greedy") {
    fields.Refuse("topk_method", "supported: greedy, group_limited_greedy");
  }
  RefuseUnless(fields, "scoring_func", "softmax");
}

// Version 3 (arXiv 2412.19437, 2.1.2): sigmoids with a correction, groups by their two greatest
// scores.
void ReadDeepSeekV3Routing(JsonFields& fields, const DeepSeekDefaults& defaults,
                           ExpertsDesc& experts) {
  experts.sigmoid = experts.corrected = true;
  experts.group_terms = 2;
  experts.normalised = fields.BoolOr("norm_topk_prob", true);
  ReadGroups(fields, defaults, experts);
  RefuseUnless(fields, "topk_method", "noaux_tc");
  RefuseUnless(fields, "scoring_func", "sigmoid");
}

void ReadDeepSeek(JsonFields& fields, bool is_v3, ExpertsDesc& experts) {
  const DeepSeekDefaults defaults = is_v3 ? DeepSeekDefaults{1, 3, 8, 4, 2.5}  //
                                          : DeepSeekDefaults{2, 0, 1, 1, 1};
  ReadCounts(fields, "n_routed_experts", experts);
  experts.intermediate = fields.Int("moe_intermediate_size", 1, kMaxWidth);
  const int shared = fields.IsNull("n_shared_experts")  // none
                         ? 0
                         : fields.IntOr("n_shared_experts", defaults.shared, 0, kMaxPerToken);
  experts.shared_intermediate = experts.intermediate * shared;
  experts.scale = fields.NumberOr("routed_scaling_factor", defaults.scale, 1e-6, 1e6);
  const int dense = fields.IntOr("first_k_dense_replace", defaults.dense_layers, 0, kMaxLayers);
  std::fill_n(experts.sparse.begin(), std::min<size_t>(dense, experts.sparse.size()), false);
  if (fields.IntOr("moe_layer_freq", 1, 1, kMaxLayers) != 1) {
    fields.Refuse("moe_layer_freq", "supported: 1");
  }
  is_v3 ? ReadDeepSeekV3Routing(fields, defaults, experts)
        : ReadDeepSeekV2Routing(fields, defaults, experts);
}

}  // namespace

std::string ExpertsDesc::Canonical() const {
  if (n == 0) return "";
  std::string text =
      absl::StrFormat(" experts %d of %d mlp %d shared %d %d normalised %d scale %.17g in %s",
                      per_token, n, intermediate, shared_intermediate, shared_gate, normalised,
                      scale, absl::StrJoin(sparse, ","));
  if (sigmoid || corrected || groups > 1) {  // the text of other models never changes
    absl::StrAppendFormat(&text, " sigmoid %d corrected %d groups %d of %d by %d", sigmoid,
                          corrected, chosen_groups, groups, group_terms);
  }
  return text;
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
    case ExpertFields::kDeepSeekV2:
    case ExpertFields::kDeepSeekV3:
      ReadDeepSeek(fields, spelling == ExpertFields::kDeepSeekV3, experts);
      break;
  }
  return experts;
}

}  // namespace baton
