#include "engine/cpu/linear/group_quantizer.h"

#include "engine/numerics/fold.h"
#include "engine/numerics/lanes.h"

namespace baton {
namespace {

constexpr int64_t kWidth = 16;

// Sixteen weights from i on, zeros beyond the last.
Lanes At(const float* weights, int64_t i, int64_t n) {
  if (i + kWidth <= n) return Load<Lanes>(weights + i);
  alignas(64) float padded[kWidth] = {};
  for (int64_t j = i; j < n; ++j) padded[j - i] = weights[j];
  return Load<Lanes>(padded);
}

Lanes Rounded(Lanes x) {
  const Lanes integer = Splat<Lanes>(0x1.8p23f);  // with this addend fp32 has no fraction bits
  return Sub(Add(x, integer), integer);
}

struct Range {
  float min, max;
};

Lanes Integers(Lanes weights, float inverse, Range range) {
  const Lanes scaled = Mul(weights, Splat<Lanes>(inverse));
  return Max(Splat<Lanes>(range.min), Min(Splat<Lanes>(range.max), Rounded(scaled)));
}

// The weight of the largest magnitude, the first of several.
float Extreme(const float* weights, int64_t n) {
  float extreme = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float w = weights[i] < 0 ? -weights[i] : weights[i];
    const float e = extreme < 0 ? -extreme : extreme;
    if (w > e) extreme = weights[i];
  }
  return extreme;
}

// Rounds to 16 significant bits: such a scale times an integer of 8 bits is exact.
float RoundScale(float scale) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, scale);
  return __builtin_bit_cast(float, (bits + 0x7fu + (bits >> 8 & 1u)) & ~0xffu);
}

struct Fit {
  float scale = 0;
  double error = 0;  // squared error minus the sum of squared weights, which is the same for all
                     // fits
};

// The integers for `inverse`, with their best scale (least squares).
Fit FitOf(const float* weights, int64_t n, float inverse, Range range) {
  Lanes products = Splat<Lanes>(0.0f), squares = Splat<Lanes>(0.0f);
  for (int64_t i = 0; i < n; i += kWidth) {
    const Lanes w = At(weights, i, n), q = Integers(w, inverse, range);
    products = Fma(w, q, products);
    squares = Fma(q, q, squares);
  }
  const double wq = static_cast<double>(FoldSum(products));
  const double qq = static_cast<double>(FoldSum(squares));
  Fit fit;
  fit.scale = RoundScale(static_cast<float>(wq / qq));
  const double scale = static_cast<double>(fit.scale);
  fit.error = scale * (scale * qq - 2 * wq);
  return fit;
}

// Values of the extreme weight, before clipping: if it is beyond the range, all weights but the
// largest gain precision. 6, 7 and 8, 127 and 128 are included so that integers times a scale are
// found again.
constexpr float kInt4Extremes[] = {6.0f, 7.0f, 7.5f, 8.0f, 8.5f, 9.0f, 9.5f, 10.0f, 10.75f, 11.5f};
constexpr float kInt8Extremes[] = {127.0f, 128.0f};

template <int kCount>
float BestScale(const float* weights, int64_t n, float extreme, const float (&extremes)[kCount],
                Range range) {
  Fit best;
  for (int i = 0; i < kCount; ++i) {
    // The extreme weight becomes negative, because the negative side of the range is one longer.
    const Fit fit = FitOf(weights, n, -extremes[i] / extreme, range);
    if (i == 0 || fit.error < best.error) best = fit;
  }
  return best.scale;
}

}  // namespace

float QuantizeGroup(const float* weights, int64_t n, bool is_int8, int8_t* values) {
  constexpr float kSmallest = 0x1p-100f;
  const Range range = is_int8 ? Range{-128, 127} : Range{-8, 7};
  const float extreme = Extreme(weights, n);
  float scale = 0, inverse = 0;
  if (extreme > kSmallest || extreme < -kSmallest) {
    scale = is_int8 ? BestScale(weights, n, extreme, kInt8Extremes, range)
                    : BestScale(weights, n, extreme, kInt4Extremes, range);
    inverse = 1.0f / scale;
  }
  for (int64_t i = 0; i < n; i += kWidth) {
    alignas(64) float integers[kWidth];
    Store(integers, Integers(At(weights, i, n), inverse, range));
    for (int64_t j = 0; j < kWidth && i + j < n; ++j) {
      values[i + j] = static_cast<int8_t>(integers[j]);
    }
  }
  return scale;
}

}  // namespace baton
