#include "engine/cpu/experts.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr int kRowsPerItem = 16;  // fewer rows are not worth waking the pool

template <typename Fn>
void ForRows(ComputePool& pool, int n, const Fn& fn) {
  pool.For((n + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
    const int first = static_cast<int>(item) * kRowsPerItem;
    for (int row = first; row < std::min(first + kRowsPerItem, n); ++row) fn(row);
  });
}

LinearArgs LayerOf(const bf16* x, int64_t x_stride, int64_t rows, const PackedWeights& weights,
                   Epilogue epilogue, bf16* y, int64_t y_stride) {
  LinearArgs args;
  args.x = x;
  args.x_stride = x_stride;
  args.rows = rows;
  args.weights = weights;
  args.epilogue = epilogue;
  args.y = y;
  args.y_stride = y_stride;
  return args;
}

}  // namespace

Experts::Experts(const ExpertsDesc& desc, int hidden, int max_rows, Arena& arena)
    : desc_(desc),
      hidden_(hidden),
      max_rows_(max_rows),
      rule_{.n_experts = desc.n,
            .per_token = desc.per_token,
            .normalised = desc.normalised,
            .scale = static_cast<float>(desc.scale),
            .sigmoid = desc.sigmoid,
            .n_groups = desc.groups,
            .chosen_groups = desc.chosen_groups,
            .group_terms = desc.group_terms},
      logits_stride_(desc.n + 1),
      first_slots_(desc.n + 1) {
  static_assert(kMaxExperts <= kMaxRouted);
  BATON_CHECK(desc.n > 0 && desc.per_token >= 1 && desc.per_token <= kMaxPerToken);
  const int64_t rows = max_rows, slots = rows * desc.per_token;
  arena.Ask(logits_, rows * logits_stride_);
  arena.Ask(routes_, slots);
  arena.Ask(slots_, slots);
  arena.Ask(rows_, slots);
  arena.Ask(inner_, slots, desc.intermediate);
  arena.Ask(outputs_, slots, hidden);
  if (desc.shared_intermediate > 0) {
    arena.Ask(shared_inner_, rows, desc.shared_intermediate);
    arena.Ask(shared_, rows, hidden);
  }
  layers_.reserve(static_cast<size_t>(desc.n + 1));
}

void Experts::Reserve(const ExpertsWeights& weights, LinearKernels& linear,
                      ComputePool& pool) const {
  for (const PackedWeights ExpertWeights::*matrix :
       {&ExpertWeights::gate_up, &ExpertWeights::down}) {
    std::vector<LinearArgs> layers(static_cast<size_t>(desc_.n + 1));
    for (int e = 0; e < desc_.n; ++e) layers[e].weights = weights.experts[e].*matrix;
    layers[0].rows = static_cast<int64_t>(max_rows_) * rule_.per_token;
    layers[desc_.n].weights = weights.shared.*matrix;
    if (desc_.shared_intermediate > 0) layers[desc_.n].rows = max_rows_;
    linear.Reserve(layers, pool);
  }
}

void Experts::Run(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm,
                  int rows, bool add, const Activations& y, LinearKernels& linear,
                  ComputePool& pool) {
  Choose(weights, x, norm, rows, linear, pool);
  PlaceRows(rows);
  RunMlps(weights, x, norm, rows, linear, pool);
  Mix(rows, add, y, pool);
}

void Experts::Choose(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm,
                     int rows, LinearKernels& linear, ComputePool& pool) {
  LinearArgs args = LayerOf(x.data, x.stride, rows, weights.router, Epilogue::kFp32, nullptr, 0);
  args.norm = norm;
  args.y_fp32 = logits_;
  args.y_stride = logits_stride_;
  linear.Run(args, pool);
  rule_.corrections = weights.corrections;
  ForRows(pool, rows, [&](int row) {
    RouteRow(logits_ + row * logits_stride_, rule_, routes_ + row * rule_.per_token);
  });
}

// Gives every expert its rows in ascending order, in adjacent slots: a counting sort.
void Experts::PlaceRows(int rows) {
  const int n_slots = rows * rule_.per_token;
  std::fill(first_slots_.begin(), first_slots_.end(), 0);
  for (int i = 0; i < n_slots; ++i) ++first_slots_[routes_[i].expert + 1];
  for (int expert = 0; expert < desc_.n; ++expert) {
    first_slots_[expert + 1] += first_slots_[expert];
  }
  // Counting moves every first slot to the next expert's first slot; afterwards they are moved
  // back.
  for (int i = 0; i < n_slots; ++i) {
    slots_[i] = first_slots_[routes_[i].expert]++;
    rows_[slots_[i]] = i / rule_.per_token;
  }
  std::copy_backward(first_slots_.begin(), first_slots_.end() - 1, first_slots_.end());
  first_slots_[0] = 0;
}

void Experts::RunMlps(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm,
                      int rows, LinearKernels& linear, ComputePool& pool) {
  const bool has_shared = desc_.shared_intermediate > 0;
  layers_.clear();
  const auto add_first = [&](const ExpertWeights& expert, int64_t n, const int32_t* rows_of_expert,
                             bf16* inner, int64_t stride) {
    LinearArgs& args = layers_.emplace_back(
        LayerOf(x.data, x.stride, n, expert.gate_up, Epilogue::kSwiGlu, inner, stride));
    args.x_rows = rows_of_expert;
    args.norm = norm;
  };
  if (has_shared) {
    add_first(weights.shared, rows, nullptr, shared_inner_.data, shared_inner_.stride);
  }
  const auto for_experts = [&](const auto& fn) {
    for (int e = 0; e < desc_.n; ++e) {
      const int64_t first = first_slots_[e], n = first_slots_[e + 1] - first;
      if (n > 0) fn(weights.experts[e], first, n);
    }
  };
  for_experts([&](const ExpertWeights& expert, int64_t first, int64_t n) {
    add_first(expert, n, rows_ + first, inner_.row(first), inner_.stride);
  });
  linear.RunAll(layers_, pool);

  layers_.clear();
  if (has_shared) {
    layers_.push_back(LayerOf(shared_inner_.data, shared_inner_.stride, rows, weights.shared.down,
                              Epilogue::kBf16, shared_.data, shared_.stride));
  }
  for_experts([&](const ExpertWeights& expert, int64_t first, int64_t n) {
    layers_.push_back(LayerOf(inner_.row(first), inner_.stride, n, expert.down, Epilogue::kBf16,
                              outputs_.row(first), outputs_.stride));
  });
  linear.RunAll(layers_, pool);
}

void Experts::Mix(int rows, bool add, const Activations& y, ComputePool& pool) {
  const int k = rule_.per_token;
  ForRows(pool, rows, [&](int row) {
    WeightedOutput outputs[kMaxPerToken + 1];
    for (int i = 0; i < k; ++i) {
      outputs[i] = {outputs_.row(slots_[row * k + i]), routes_[row * k + i].weight};
    }
    int n = k;
    if (desc_.shared_intermediate > 0) {
      const float logit = logits_[row * logits_stride_ + desc_.n];
      outputs[n++] = {shared_.row(row), desc_.shared_gate ? SharedWeight(logit) : 1.0f};
    }
    MixRow(outputs, n, hidden_, add, y.row(row));
  });
}

}  // namespace baton
