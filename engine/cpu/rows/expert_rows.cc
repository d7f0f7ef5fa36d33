// A kernel unit: see the rules in engine/CMakeLists.txt.
#include "engine/cpu/rows/expert_rows.h"

#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

constexpr float kLog2E = 0x1.715476p0f;

template <class L>
L Power(L logit, L greatest) {
  return Exp2(Mul(Sub(logit, greatest), Splat<L>(kLog2E)));
}

float Sigmoid(float logit) { return Div(1.0f, Add(1.0f, Exp2(Mul(logit, -kLog2E)))); }

// Puts the k greatest of n keys first, with the key in its route's weight; equal keys stay in
// order.
void ChooseGreatest(const float* keys, int n, int k, Route* routes) {
  int count = 0;
  for (int i = 0; i < n; ++i) {
    const float key = keys[i];
    if (count == k && !(key > routes[count - 1].weight)) continue;
    int place = count < k ? count++ : count - 1;
    for (; place > 0 && key > routes[place - 1].weight; --place) routes[place] = routes[place - 1];
    routes[place] = {i, key};
  }
}

float KeyOf(const float* logits, const RouterRule& rule, int expert) {
  const float score = rule.sigmoid ? Sigmoid(logits[expert]) : logits[expert];
  return rule.corrections == nullptr ? score : Add(score, rule.corrections[expert]);
}

// Keys of experts outside the best groups become smaller than any other key.
void RefuseGroups(const RouterRule& rule, float* keys) {
  const int size = rule.n_experts / rule.n_groups;
  float scores[kMaxRouted];
  Route best[kMaxRouted];
  for (int group = 0; group < rule.n_groups; ++group) {
    ChooseGreatest(keys + group * size, size, rule.group_terms, best);
    scores[group] = rule.group_terms == 2 ? Add(best[0].weight, best[1].weight) : best[0].weight;
  }
  ChooseGreatest(scores, rule.n_groups, rule.chosen_groups, best);
  for (int group = 0; group < rule.n_groups; ++group) {
    bool is_chosen = false;
    for (int i = 0; i < rule.chosen_groups; ++i) is_chosen |= best[i].expert == group;
    if (is_chosen) continue;
    for (int i = 0; i < size; ++i) keys[group * size + i] = -__builtin_inff();
  }
}

void SortByExpert(Route* routes, int n) {
  for (int i = 1; i < n; ++i) {
    const Route route = routes[i];
    int place = i;
    for (; place > 0 && routes[place - 1].expert > route.expert; --place)
      routes[place] = routes[place - 1];
    routes[place] = route;
  }
}

float SumOfPowers(const float* logits, int n, float greatest) {
  const Lanes top = Splat<Lanes>(greatest);
  Lanes sum = Splat<Lanes>(0.0f);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = Add(sum, Power(Load<Lanes>(logits + i), top));
  if (i < n) {
    float rest[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
      rest[lane] = i + lane < n ? logits[i + lane] : -__builtin_inff();  // weighs nothing
    sum = Add(sum, Power(Load<Lanes>(rest), top));
  }
  return FoldSum(sum);
}

template <class L>
void MixAt(const WeightedOutput* outputs, int n_outputs, int64_t i, bool add, bf16* y) {
  L sum = Splat<L>(0.0f);
  for (int j = 0; j < n_outputs; ++j)
    sum = Fma(Splat<L>(outputs[j].weight), LoadBf16<L>(outputs[j].output + i), sum);
  StoreBf16(y + i, add ? Add(LoadBf16<L>(y + i), RoundBf16(sum)) : sum);
}

}  // namespace

void RouteRow(const float* logits, const RouterRule& rule, Route* routes) {
  float keys[kMaxRouted];
  for (int expert = 0; expert < rule.n_experts; ++expert)
    keys[expert] = KeyOf(logits, rule, expert);
  if (rule.chosen_groups < rule.n_groups) RefuseGroups(rule, keys);
  ChooseGreatest(keys, rule.n_experts, rule.per_token, routes);
  const float greatest = routes[0].weight;
  SortByExpert(routes, rule.per_token);
  float sum = 0;
  for (int i = 0; i < rule.per_token; ++i) {
    const float logit = logits[routes[i].expert];
    routes[i].weight = rule.sigmoid ? Sigmoid(logit) : Power(logit, greatest);
    sum = Add(sum, routes[i].weight);
  }
  if (rule.sigmoid) {
    sum = rule.normalised ? Add(sum, 1e-20f) : 1.0f;  // the sum of all sigmoids may be 0
  } else if (!rule.normalised) {
    sum = SumOfPowers(logits, rule.n_experts, greatest);
  }
  for (int i = 0; i < rule.per_token; ++i)
    routes[i].weight = Mul(Div(routes[i].weight, sum), rule.scale);
}

float SharedWeight(float logit) { return Sigmoid(logit); }

void MixRow(const WeightedOutput* outputs, int n_outputs, int64_t n, bool add, bf16* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) MixAt<Lanes>(outputs, n_outputs, i, add, y);
  for (; i < n; ++i) MixAt<float>(outputs, n_outputs, i, add, y);
}

}  // namespace baton
