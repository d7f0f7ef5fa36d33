// Scalar forms of what rows.h computes, on memory of the host, by the rules N3 to N6 of
// docs/NUMERICS.md and the scalar lanes of engine/numerics. Needs the numerics MXCSR. Any thread.
#pragma once

#include <xmmintrin.h>

#include <cstdint>
#include <vector>

#include "engine/numerics/fold.h"
#include "engine/numerics/tanh.h"

namespace baton {
namespace {

inline float InverseRootReference(float squares, int n, float eps) {
  const float mean = squares / static_cast<float>(n);
  return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
}

// bias null: RMSNorm. out: stride values, zeros behind `width`; it may be x.
inline void NormReference(const bf16* x, const float* weight, const float* bias, int width,
                          float eps, int stride, bf16* out) {
  float mean = 0, lanes[kLanes] = {};
  if (bias != nullptr) {
    for (int i = 0; i < width; ++i) lanes[i % kLanes] = lanes[i % kLanes] + Bf16ToFloat(x[i]);
    mean = FoldSum(lanes) / static_cast<float>(width);
  }
  float squares[kLanes] = {};
  for (int i = 0; i < width; ++i) {
    const float value = bias != nullptr ? Bf16ToFloat(x[i]) - mean : Bf16ToFloat(x[i]);
    squares[i % kLanes] = Fma(value, value, squares[i % kLanes]);
  }
  const float inverse = InverseRootReference(FoldSum(squares), width, eps);
  for (int i = 0; i < width; ++i) {
    const float value = Bf16ToFloat(x[i]);
    out[i] = bias == nullptr ? FloatToBf16((value * inverse) * weight[i])
                             : FloatToBf16(Fma((value - mean) * inverse, weight[i], bias[i]));
  }
  for (int i = width; i < stride; ++i) out[i] = 0;
}

inline void AddReference(const bf16* y, int width, bf16* x) {
  for (int i = 0; i < width; ++i) x[i] = FloatToBf16(Bf16ToFloat(x[i]) + Bf16ToFloat(y[i]));
}

inline void EmbedReference(const bf16* table_row, int width, float scale, int stride, bf16* x) {
  for (int i = 0; i < width; ++i)
    x[i] = scale == 1.0f ? table_row[i] : FloatToBf16(Bf16ToFloat(table_row[i]) * scale);
  for (int i = width; i < stride; ++i) x[i] = 0;
}

// A head of q or k before it is stored: norm unless weight is null, then RoPE.
inline std::vector<bf16> HeadReference(const bf16* head, int head_dim, int rotary_dim,
                                       const float* weight, float eps, const float* cos,
                                       const float* sin) {
  std::vector<bf16> to(head, head + head_dim);
  if (weight != nullptr) NormReference(head, weight, nullptr, head_dim, eps, head_dim, to.data());
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float x0 = Bf16ToFloat(to[i]), x1 = Bf16ToFloat(to[half + i]);
    to[i] = FloatToBf16(Fma(x0, cos[i], -(x1 * sin[i])));
    to[half + i] = FloatToBf16(Fma(x1, cos[i], x0 * sin[i]));
  }
  return to;
}

inline float FinishReference(float logit, float cap) {
  return CanonicalizeNan(cap == 0 ? logit : SoftCap(logit, 1.0f / cap, cap));
}

}  // namespace
}  // namespace baton
