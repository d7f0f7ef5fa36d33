// Row operations of a sparse layer (mixture of experts) in numerics v1, in one unit with vector
// instructions that serves every ISA path. Needs the compute pool's MXCSR (lanes.h).
//
//   key:    the logit, or 1 / (1 + 2^(-logit log2 e)) if scores are sigmoids; plus the expert's
//           correction, if there are any
//   groups: of g groups of neighbours those with the greatest sums of their greatest one or two
//           keys; equal groups by lowest index; 1 of 1: all experts
//   chosen: the k experts with the greatest keys there; equal experts by lowest index
//   weight: softmax: p / (sum of all p, or of the chosen ones, ascending, if normalised) * scale
//           with p = 2^((logit - greatest) log2 e); the sum of all in sixteen lanes, folded
//           8, 4, 2, 1. Sigmoid: the sigmoid, / (sum of the chosen ones, ascending, + 1e-20) if
//           normalised, * scale
//   mixed:  from +0, fma(weight, output, sum) by ascending expert, the shared one last
//
// Every result is a function of one row's logits and outputs: other rows' experts have no
// influence.
#pragma once

#include <cstdint>

#include "engine/numerics/bf16.h"

namespace baton {

struct RouterRule {
  int n_experts = 0;
  int per_token = 0;  // experts chosen for a row, 1 to n_experts
  bool normalised = false;
  float scale = 1;
  bool sigmoid = false;                 // false: softmax
  const float* corrections = nullptr;   // (n_experts) for sigmoids, or null
  int n_groups = 1, chosen_groups = 1;  // n_groups divides n_experts
  int group_terms = 1;                  // 1 or 2, at most n_experts / n_groups
};
inline constexpr int kMaxRouted = 1024;  // experts per layer

// One expert of a row and the weight of its output.
struct Route {
  int32_t expert = 0;
  float weight = 0;  // NaN if a logit is NaN
};

// routes: (rule.per_token), by ascending expert.
void RouteRow(const float* logits, const RouterRule& rule, Route* routes);

// 1 / (1 + e^-x): weight of a shared expert with a gate.
float SharedWeight(float logit);

// The (bf16) output of one expert for a row, and its weight.
struct WeightedOutput {
  const bf16* output;
  float weight;
};

// m[i] = bf16(sum of weight * output[i]), i < n; y = m, or y = bf16(y + m) if `add`
// (docs/NUMERICS.md N3).
void MixRow(const WeightedOutput* outputs, int n_outputs, int64_t n, bool add, bf16* y);

}  // namespace baton
