// The fields of a config about experts (mixture of experts): sparse layers, number of experts, and
// their choice by a row. Part of ModelDesc. Plain values.
#pragma once

#include <string>
#include <vector>

namespace baton {

class JsonFields;

// Limits, larger than in every published model.
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxPerToken = 64;  // experts per row

struct ExpertsDesc {
  int n = 0;             // experts of each sparse layer; 0: all layers are dense
  int per_token = 0;     // experts chosen per row, by greatest score; 1 to n, at most kMaxPerToken
  bool sigmoid = false;  // scores: sigmoid of the router logits, else softmax
  // A correction per expert (fp32) is added to the score for the choice of experts, not for their
  // weights.
  bool corrected = false;
  // Grouped choice: experts are chosen only from the best `chosen_groups` of `groups` groups of
  // neighbours. The score of a group is the sum of its `group_terms` greatest scores.
  int groups = 1, chosen_groups = 1, group_terms = 1;
  int intermediate = 0;  // width of an expert
  // Width of the shared expert, which processes every row; 0: none. Several shared experts count as
  // one of their total width.
  int shared_intermediate = 0;
  bool shared_gate = false;  // the shared expert's weight is the sigmoid of its own logit, else 1
  bool normalised = false;   // the chosen experts' weights sum to 1 (before `scale`)
  double scale = 1;          // factor of the chosen experts' weights
  std::vector<bool> sparse;  // (n_layers) layers with experts; the others have one MLP
  bool is_sparse(int layer) const { return n > 0 && sparse[layer]; }
  std::string Canonical() const;  // a part of ModelDesc::Canonical; empty without experts
};

// Spelling of these fields in a family's config.json.
enum class ExpertFields { kNone, kMixtral, kQwen2, kQwen3, kDeepSeekV2, kDeepSeekV3 };

// Reads these fields; kNone: returns no experts. intermediate: intermediate_size of the config.
// `fields` remembers errors.
ExpertsDesc ReadExperts(JsonFields& fields, ExpertFields spelling, int n_layers, int intermediate);

}  // namespace baton
