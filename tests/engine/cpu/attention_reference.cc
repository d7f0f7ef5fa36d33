#include "tests/engine/cpu/attention_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/numerics/exp2.h"
#include "engine/numerics/tanh.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr int kTile = 128, kSegment = 512;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Continues acc through 32 products: even and odd chains from +0, then their sum.
template <typename A, typename B>
float TileOrder(float acc, const A& a, const B& b) {
  float even = 0, odd = 0;
  for (int p = 0; p < 16; ++p) {
    even = __builtin_fmaf(a(2 * p), b(2 * p), even);
    odd = __builtin_fmaf(a(2 * p + 1), b(2 * p + 1), odd);
  }
  return acc + (even + odd);
}

// Returns the factor that turns a score into an exponent of two.
float Exponent(const ReferenceRule& rule) {
  return static_cast<float>((rule.soft_cap == 0 ? rule.scale : 1.0) * 1.4426950408889634);
}

ReferenceState EmptyState(size_t head_dim) {
  return {kMinusInfinity, 0.0f, std::vector<float>(head_dim, 0.0f)};
}

// Adds eight vectors of sixteen weights in a fixed tree, then the sixteen lanes 8, 4, 2, 1.
float SumWeights(const std::array<float, kTile>& p) {
  std::array<float, 16> lane;
  for (size_t i = 0; i < 16; ++i)
    lane[i] = ((p[i] + p[i + 16]) + (p[i + 32] + p[i + 48])) +
              ((p[i + 64] + p[i + 80]) + (p[i + 96] + p[i + 112]));
  for (size_t width = 8; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lane[i] = lane[i] + lane[i + width];
  return lane[0];
}

// Adds a tile of n_keys keys, of which the first n_hidden lie before the window.
void AddTile(const ReferenceKv& kv, const bf16* q, int first_key, int n_keys, int n_hidden,
             const ReferenceRule& rule, ReferenceState* s) {
  const int key_dim = kv.key_dim, value_dim = kv.value_dim;
  const float c = Exponent(rule);
  const bool is_int8 = !kv.k_scale.empty();
  std::array<float, kTile> score, weight{}, value_weight{};
  score.fill(kMinusInfinity);
  for (int j = std::max(0, n_hidden); j < n_keys; ++j) {
    const bf16* k = kv.k.data() + static_cast<int64_t>(first_key + j) * key_dim;
    float acc = 0;
    for (int g = 0; g < key_dim; g += 32)
      acc = TileOrder(
          acc, [&](int i) { return g + i < key_dim ? Bf16ToFloat(q[g + i]) : 0.0f; },
          [&](int i) { return g + i < key_dim ? Bf16ToFloat(k[g + i]) : 0.0f; });
    if (is_int8) acc = acc * kv.k_scale[static_cast<size_t>(first_key + j)];
    if (rule.soft_cap != 0) {
      const float cap = static_cast<float>(rule.soft_cap);
      acc = cap * Tanh(acc * static_cast<float>(rule.scale / rule.soft_cap));
    }
    score[static_cast<size_t>(j)] = acc;
  }
  const float max = std::max(s->max, *std::max_element(score.begin(), score.end()));
  if (max == kMinusInfinity) return;
  const float a = s->max == kMinusInfinity ? 0.0f : Exp2((s->max - max) * c);
  const float shift = -(max * c);
  for (int j = std::max(0, n_hidden); j < n_keys; ++j) {
    const size_t i = static_cast<size_t>(j);
    const float p = Exp2(__builtin_fmaf(score[i], c, shift));
    weight[i] = RoundBf16(p);
    value_weight[i] =
        is_int8 ? RoundBf16(p * kv.v_scale[static_cast<size_t>(first_key + j)]) : weight[i];
  }
  s->sum = __builtin_fmaf(s->sum, a, SumWeights(weight));
  for (int d = 0; d < value_dim; ++d) {
    float acc = s->out[static_cast<size_t>(d)] * a;
    for (int g = 0; g < n_keys; g += 32)
      acc = TileOrder(
          acc, [&](int i) { return value_weight[static_cast<size_t>(g + i)]; },
          [&](int i) {
            const int64_t key = first_key + g + i;
            return g + i < n_keys ? Bf16ToFloat(kv.v[static_cast<size_t>(key * value_dim + d)])
                                  : 0.0f;
          });
    s->out[static_cast<size_t>(d)] = acc;
  }
  s->max = max;
}

}  // namespace

ReferenceState ReferenceAttentionState(const ReferenceKv& kv, const bf16* q, int position,
                                       const ReferenceRule& rule) {
  const NumericsMxcsrScope mxcsr;
  const int first_key = rule.window == 0 ? 0 : std::max(0, position + 1 - rule.window);
  const size_t d_head = static_cast<size_t>(kv.value_dim);
  const float c = Exponent(rule);
  ReferenceState row = EmptyState(d_head);
  for (int segment = 0; segment <= position; segment += kSegment) {
    ReferenceState s = EmptyState(d_head);
    for (int tile = segment; tile < segment + kSegment && tile <= position; tile += kTile)
      if (tile + kTile > first_key)
        AddTile(kv, q, tile, std::min(kTile, position + 1 - tile), first_key - tile, rule, &s);
    const float max = std::max(row.max, s.max);
    if (max == kMinusInfinity) continue;
    const float a = row.max == kMinusInfinity ? 0.0f : Exp2((row.max - max) * c);
    const float b = s.max == kMinusInfinity ? 0.0f : Exp2((s.max - max) * c);
    row.sum = __builtin_fmaf(row.sum, a, s.sum * b);
    for (size_t d = 0; d < d_head; ++d) row.out[d] = __builtin_fmaf(row.out[d], a, s.out[d] * b);
    row.max = max;
  }
  return row;
}

void ReferenceAttention(const ReferenceKv& kv, const bf16* q, int position,
                        const ReferenceRule& rule, bf16* out) {
  const NumericsMxcsrScope mxcsr;
  const ReferenceState row = ReferenceAttentionState(kv, q, position, rule);
  const float inverse = 1.0f / row.sum;
  for (size_t d = 0; d < row.out.size(); ++d) out[d] = FloatToBf16(row.out[d] * inverse + 0.0f);
}

ReferenceInt8 EncodeInt8(const bf16* x, int n) {
  const NumericsMxcsrScope mxcsr;
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::abs(Bf16ToFloat(x[i])));
  ReferenceInt8 result{std::min(largest, 0x1.fep127f) / 127.0f, {}};
  const float inverse = result.scale > 0 ? 1.0f / result.scale : 0.0f;
  for (int i = 0; i < n; ++i) {
    const float quotient = Bf16ToFloat(x[i]) * inverse;
    const float bounded = quotient > -127.0f ? std::min(quotient, 127.0f) : -127.0f;
    result.numbers.push_back(static_cast<int8_t>(std::nearbyint(bounded)));
  }
  return result;
}

std::vector<double> ExactAttention(const ReferenceKv& kv, const bf16* q, int position,
                                   const ReferenceRule& rule) {
  const size_t key_dim = static_cast<size_t>(kv.key_dim);
  const size_t value_dim = static_cast<size_t>(kv.value_dim), n = static_cast<size_t>(position) + 1;
  std::vector<double> weight(n);
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t j = 0; j < n; ++j) {
    double dot = 0;
    for (size_t d = 0; d < key_dim; ++d)
      dot += double{Bf16ToFloat(q[d])} * double{Bf16ToFloat(kv.k[j * key_dim + d])};
    weight[j] = dot * rule.scale;
    if (rule.soft_cap != 0) weight[j] = rule.soft_cap * std::tanh(weight[j] / rule.soft_cap);
    max = std::max(max, weight[j]);
  }
  std::vector<double> out(value_dim, 0.0);
  for (size_t j = 0; j < n; ++j) {
    weight[j] = std::exp(weight[j] - max);
    sum += weight[j];
    for (size_t d = 0; d < value_dim; ++d)
      out[d] += weight[j] * double{Bf16ToFloat(kv.v[j * value_dim + d])};
  }
  for (double& x : out) x /= sum;
  return out;
}

}  // namespace baton
