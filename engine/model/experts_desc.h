// What a config says about experts (mixture of experts): which layers are sparse, how many experts
// they have and how a row chooses among them. Part of ModelDesc.
#pragma once

#include <string>
#include <vector>

namespace baton {

class JsonFields;

// Above every published model.
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxPerToken = 64;  // experts of a row

struct ExpertsDesc {
  int n = 0;             // of each sparse layer; 0: all layers are dense
  int per_token = 0;     // chosen for a row: the greatest scores, 1 to n, kMaxPerToken
  bool sigmoid = false;  // scores are sigmoids of the router logits, else their softmax
  // A number of each expert (fp32) is added to its score where experts are chosen, not where they
  // are weighed.
  bool corrected = false;
  // Experts are chosen among those of the best `chosen_groups` of `groups` groups of neighbours. A
  // group is as good as the sum of its `group_terms` greatest scores.
  int groups = 1, chosen_groups = 1, group_terms = 1;
  int intermediate = 0;  // width of an expert
  // Width of the shared expert, which takes every row; 0: none. Several are one of their width.
  int shared_intermediate = 0;
  bool shared_gate = false;  // the shared expert weighs sigmoid of a logit of its own, else 1
  bool normalised = false;   // the chosen experts' weights sum to 1 (before `scale`)
  double scale = 1;          // of the chosen experts' weights
  std::vector<bool> sparse;  // (n_layers) layers with experts; the others have one MLP
  bool is_sparse(int layer) const { return n > 0 && sparse[layer]; }
  std::string Canonical() const;  // a part of ModelDesc::Canonical; empty without experts
};

// How a family's config.json spells it.
enum class ExpertFields { kNone, kMixtral, kQwen2, kQwen3, kDeepSeekV2, kDeepSeekV3 };

// intermediate: intermediate_size. Errors are remembered by `fields`.
ExpertsDesc ReadExperts(JsonFields& fields, ExpertFields spelling, int n_layers, int intermediate);

}  // namespace baton
