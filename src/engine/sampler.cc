#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "engine/cpu/mxcsr.h"
#include "engine/numerics/log.h"
#include "engine/numerics/philox.h"
#include "engine/sampler_rows.h"

namespace baton {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Unsigned order of keys = order of logits; -0 and +0 are one, NaN is -inf.
uint32_t OrderedKey(float logit) {
  const float sane = logit > kMinusInfinity ? logit + 0.0f : kMinusInfinity;
  const uint32_t bits = __builtin_bit_cast(uint32_t, sane);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace

SampledToken Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                             int64_t position) {
  CHECK(!logits.empty());
  const NumericsMxcsrScope mxcsr;
  const int64_t n = static_cast<int64_t>(logits.size());
  const TopLogit top = FindTopLogit(logits.data(), n);
  if (top.value == kMinusInfinity) return {0, kMinusInfinity};
  const int32_t token =
      params.temperature > 0 ? Draw(logits, top.value, params, position) : top.token;
  const double total =
      WeighLogits(logits.data(), n, top.value, static_cast<float>(kLog2E), nullptr, nullptr);
  const float logit =
      std::min(logits[static_cast<size_t>(token)], std::numeric_limits<float>::max());
  const double gap = static_cast<double>(logit) - static_cast<double>(top.value);
  return {token, static_cast<float>(gap - NaturalLog(total))};
}

int32_t Sampler::Draw(std::span<const float> logits, float top, const SamplingParams& params,
                      int64_t position) {
  const size_t n = logits.size();
  const double c = std::min(kLog2E / static_cast<double>(params.temperature), 1e30);
  weights_.resize(n);
  block_sums_.resize((n + kWeightBlock - 1) / kWeightBlock);
  const double total = WeighLogits(logits.data(), static_cast<int64_t>(n), top,
                                   static_cast<float>(c), weights_.data(), block_sums_.data());
  const double uniform = UniformAt(params.seed, position, 0);
  const bool top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < n;
  const bool top_p = params.top_p < 1.0f;
  if (!top_k && !top_p) return DrawFromAll(uniform * total);

  candidates_.resize(n);
  std::iota(candidates_.begin(), candidates_.end(), 0);
  if (top_k) KeepTop(logits, params.top_k, [](int32_t) { return 1.0; });
  if (top_p) {
    const auto weight = [this](int32_t token) {
      return static_cast<double>(weights_[static_cast<size_t>(token)]);
    };
    double mass = 0;
    for (const int32_t token : candidates_) mass += weight(token);
    KeepTop(logits, static_cast<double>(params.top_p) * mass, weight);
  }
  return DrawFromCandidates(uniform);
}

// The token whose share of [0, total) contains target.
int32_t Sampler::DrawFromAll(double target) const {
  double below = 0;
  size_t block = 0;
  while (block + 1 < block_sums_.size() && below + block_sums_[block] <= target)
    below += block_sums_[block++];
  size_t i = block * kWeightBlock;
  const size_t end = std::min(i + kWeightBlock, weights_.size());
  for (; i < end; ++i) {
    below += static_cast<double>(weights_[i]);
    if (below > target) return static_cast<int32_t>(i);
  }
  // Rounding may carry the walk past the block's end: then the last token with any weight.
  while (weights_[--i] == 0) {
  }
  return static_cast<int32_t>(i);
}

int32_t Sampler::DrawFromCandidates(double uniform) const {
  double total = 0;
  for (const int32_t token : candidates_)
    total += static_cast<double>(weights_[static_cast<size_t>(token)]);
  const double target = uniform * total;
  double below = 0;
  int32_t last = candidates_.front();
  for (const int32_t token : candidates_) {
    const float weight = weights_[static_cast<size_t>(token)];
    if (weight == 0) continue;
    last = token;
    below += static_cast<double>(weight);
    if (below > target) break;
  }
  return last;
}

// Leaves in candidates_ the first of them, by descending logit and ascending id, whose quantities
// add up to `limit`. No sort: three passes over 11, 11 and 10 bits of the key find the border
// value, each adding up quantities per bucket in token order.
template <typename Quantity>
void Sampler::KeepTop(std::span<const float> logits, double limit, const Quantity& quantity) {
  const auto key = [&](int32_t token) { return OrderedKey(logits[static_cast<size_t>(token)]); };
  constexpr std::array<std::array<int, 2>, 3> kDigits = {{{21, 11}, {10, 11}, {0, 10}}};
  double above = 0;  // sum of everything above the border's bucket
  uint32_t border = 0;
  border_ = candidates_;
  for (const auto& [shift, bits] : kDigits) {
    const uint32_t mask = (1u << bits) - 1;
    buckets_.assign(size_t{1} << bits, 0.0);
    for (const int32_t token : border_) buckets_[key(token) >> shift & mask] += quantity(token);
    size_t chosen = 0;
    double chosen_above = above;
    for (size_t b = buckets_.size(); b-- > 0;) {
      if (buckets_[b] <= 0) continue;
      chosen = b;  // the lowest bucket that holds anything, if rounding never reaches the limit
      chosen_above = above;
      above += buckets_[b];
      if (above >= limit) break;
    }
    above = chosen_above;
    border |= static_cast<uint32_t>(chosen) << shift;
    std::erase_if(border_, [&, s = shift](int32_t t) { return (key(t) >> s & mask) != chosen; });
  }
  size_t ties = 0;
  while (ties < border_.size() && (ties == 0 || above < limit)) above += quantity(border_[ties++]);
  std::erase_if(candidates_, [&](int32_t token) {
    const uint32_t k = key(token);
    if (k == border && ties > 0) {
      --ties;
      return false;
    }
    return k <= border;
  });
}

}  // namespace baton
