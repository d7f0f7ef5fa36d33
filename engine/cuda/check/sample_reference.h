// The sampler of the host for rows that no parameter changes and that no filter cuts, in scalar
// form by rule N8 of docs/NUMERICS.md, beside what sample.h computes. Needs the numerics MXCSR. Any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda/sample_row.h"
#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"
#include "engine/numerics/log.h"
#include "engine/numerics/philox.h"

namespace baton {
namespace {

constexpr float kMinusInfinityReference = -__builtin_inff();

inline float SaneReference(float x) { return Min(Max(x, kMinusInfinityReference), __FLT_MAX__); }

inline int32_t TopReference(std::span<const float> logits) {
  size_t top = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (SaneReference(logits[i]) > SaneReference(logits[top])) top = i;
  return static_cast<int32_t>(top);
}

struct WeightsReference {
  std::vector<float> weights;
  std::vector<double> block_sums;
  double total = 0;
};

inline WeightsReference WeighReference(std::span<const float> logits, float top, float factor) {
  constexpr size_t kBlock = 256;
  WeightsReference result;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    float lanes[kLanes] = {};
    for (size_t i = begin; i < std::min(begin + kBlock, logits.size()); ++i) {
      const float weight = Exp2<float>((SaneReference(logits[i]) - top) * factor);
      result.weights.push_back(weight);
      lanes[i % kLanes] = lanes[i % kLanes] + weight;
    }
    result.block_sums.push_back(static_cast<double>(FoldSum(lanes)));
    result.total += result.block_sums.back();
  }
  return result;
}

// The token whose share of [0, total) contains target.
inline int32_t DrawReference(const WeightsReference& from, double target) {
  constexpr size_t kBlock = 256;
  double below = 0;
  size_t block = 0;
  while (block + 1 < from.block_sums.size() && below + from.block_sums[block] <= target)
    below += from.block_sums[block++];
  size_t i = block * kBlock;
  for (const size_t end = std::min(i + kBlock, from.weights.size()); i < end; ++i) {
    below += static_cast<double>(from.weights[i]);
    if (below > target) return static_cast<int32_t>(i);
  }
  while (from.weights[--i] == 0) {
  }
  return static_cast<int32_t>(i);
}

inline SampleRowResult SampleReference(std::span<const float> logits,
                                       const SampleRowArguments& row) {
  constexpr double kLog2OfE = 1.4426950408889634;
  const std::span<const float> drawable = logits.first(static_cast<size_t>(row.drawable));
  const float top = SaneReference(logits[TopReference(logits)]);
  SampleRowResult result{.token = TopReference(drawable), .logprob = kMinusInfinityReference};
  const float drawable_top = SaneReference(drawable[result.token]);
  if (drawable_top > kMinusInfinityReference && row.temperature > 0) {
    const double factor = std::min(kLog2OfE / static_cast<double>(row.temperature), 1e30);
    const WeightsReference weights =
        WeighReference(drawable, drawable_top, static_cast<float>(factor));
    result.token = DrawReference(weights, UniformAt(row.seed, row.position, 0) * weights.total);
  }
  const float logit = logits[result.token];
  if (top > kMinusInfinityReference && logit == logit) {
    const double total = WeighReference(logits, top, static_cast<float>(kLog2OfE)).total;
    const double gap = static_cast<double>(std::min(logit, __FLT_MAX__)) - static_cast<double>(top);
    result.logprob = static_cast<float>(gap - NaturalLog(total));
  }
  return result;
}

}  // namespace
}  // namespace baton
