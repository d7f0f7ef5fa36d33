// Norms, sums, scales and rope of one row on the sixteen virtual lanes, once for every path. For
// kernel units; the public functions are in elementwise.h.
#pragma once

#include "engine/numerics/fold.h"
#include "engine/numerics/tanh.h"

namespace baton {

struct ElementwiseRows {
  void (*rms_norm)(const bf16* x, const float* weight, int64_t n, int64_t n_padded, float eps,
                   bf16* out);
  void (*layer_norm)(const bf16* x, const float* weight, const float* bias, int64_t n,
                     int64_t n_padded, float eps, bf16* out);
  void (*add)(const bf16* y, int64_t n, bf16* x);
  void (*scale)(float by, int64_t n, bf16* x);
  void (*soft_cap)(float cap, int64_t n, float* x);
  void (*rope)(bf16* head, int64_t d, const float* cos, const float* sin);
  // numbers[i] = x[i] / scale rounded to the nearest (even) integer. Returns the scale, which is
  // always finite. n: a multiple of 16.
  float (*quantize)(const bf16* x, int64_t n, int8_t* numbers);
};

const ElementwiseRows& ElementwiseRowsAvx2();
const ElementwiseRows& ElementwiseRowsAvx512();

#if defined(__AVX2__) && defined(__FMA__)
namespace {

// The last n % 16 elements, followed by zeros.
template <typename T>
struct Tail {
  alignas(64) T values[kLanes] = {};
  Tail(const T* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[i] = from[i];
  }
  void CopyTo(T* to, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) to[i] = values[i];
  }
};

// 1 / sqrt(sum of lanes / n + eps), in every lane.
Lanes InverseRoot(Lanes squares, int64_t n, float eps) {
  const float mean = FoldSum(squares) / static_cast<float>(n);
  return Splat<Lanes>(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
}

void RmsNorm(const bf16* x, const float* weight, int64_t n, int64_t n_padded, float eps,
             bf16* out) {
  const int64_t whole = n / kLanes * kLanes, rest = n - whole;
  const Tail<bf16> x_tail(x + whole, rest);
  Lanes squares = Splat<Lanes>(0.0f);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes v = LoadBf16<Lanes>(x + i);
    squares = Fma(v, v, squares);
  }
  const Lanes last = LoadBf16<Lanes>(x_tail.values);
  if (rest > 0) squares = Fma(last, last, squares);

  const Lanes inverse = InverseRoot(squares, n, eps);
  for (int64_t i = 0; i < whole; i += kLanes)
    StoreBf16(out + i, Mul(Mul(LoadBf16<Lanes>(x + i), inverse), Load<Lanes>(weight + i)));
  if (rest > 0) {
    const Tail<float> w(weight + whole, rest);
    Tail<bf16> y(nullptr, 0);
    StoreBf16(y.values, Mul(Mul(last, inverse), Load<Lanes>(w.values)));
    y.CopyTo(out + whole, rest);
  }
  for (int64_t i = n; i < n_padded; ++i) out[i] = 0;
}

void LayerNorm(const bf16* x, const float* weight, const float* bias, int64_t n, int64_t n_padded,
               float eps, bf16* out) {
  const int64_t whole = n / kLanes * kLanes;
  const int rest = static_cast<int>(n - whole);
  const Lanes last = LoadBf16<Lanes>(Tail<bf16>(x + whole, rest).values);
  const Lanes zero = Splat<Lanes>(0.0f);
  Lanes sum = zero;
  for (int64_t i = 0; i < whole; i += kLanes) sum = Add(sum, LoadBf16<Lanes>(x + i));
  if (rest > 0) sum = Add(sum, last);
  const Lanes mean = Splat<Lanes>(FoldSum(sum) / static_cast<float>(n));

  Lanes squares = zero;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes v = Sub(LoadBf16<Lanes>(x + i), mean);
    squares = Fma(v, v, squares);
  }
  const Lanes last_centred = KeepFirst(Sub(last, mean), rest, zero);
  if (rest > 0) squares = Fma(last_centred, last_centred, squares);

  const Lanes inverse = InverseRoot(squares, n, eps);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes v = Mul(Sub(LoadBf16<Lanes>(x + i), mean), inverse);
    StoreBf16(out + i, Fma(v, Load<Lanes>(weight + i), Load<Lanes>(bias + i)));
  }
  if (rest > 0) {
    const Tail<float> w(weight + whole, rest), b(bias + whole, rest);
    Tail<bf16> y(nullptr, 0);
    StoreBf16(y.values,
              Fma(Mul(last_centred, inverse), Load<Lanes>(w.values), Load<Lanes>(b.values)));
    y.CopyTo(out + whole, rest);
  }
  for (int64_t i = n; i < n_padded; ++i) out[i] = 0;
}

void AddRow(const bf16* y, int64_t n, bf16* x) {
  const int64_t whole = n / kLanes * kLanes, rest = n - whole;
  for (int64_t i = 0; i < whole; i += kLanes)
    StoreBf16(x + i, Add(LoadBf16<Lanes>(x + i), LoadBf16<Lanes>(y + i)));
  if (rest == 0) return;
  Tail<bf16> a(x + whole, rest);
  const Tail<bf16> b(y + whole, rest);
  StoreBf16(a.values, Add(LoadBf16<Lanes>(a.values), LoadBf16<Lanes>(b.values)));
  a.CopyTo(x + whole, rest);
}

void ScaleRow(float by, int64_t n, bf16* x) {
  const int64_t whole = n / kLanes * kLanes, rest = n - whole;
  const Lanes factor = Splat<Lanes>(by);
  for (int64_t i = 0; i < whole; i += kLanes) StoreBf16(x + i, Mul(LoadBf16<Lanes>(x + i), factor));
  if (rest == 0) return;
  Tail<bf16> a(x + whole, rest);
  StoreBf16(a.values, Mul(LoadBf16<Lanes>(a.values), factor));
  a.CopyTo(x + whole, rest);
}

void SoftCapRow(float cap, int64_t n, float* x) {
  const int64_t whole = n / kLanes * kLanes, rest = n - whole;
  const Lanes by = Splat<Lanes>(1.0f / cap), limit = Splat<Lanes>(cap);
  for (int64_t i = 0; i < whole; i += kLanes)
    Store(x + i, CanonicalizeNan(SoftCap(Load<Lanes>(x + i), by, limit)));
  if (rest == 0) return;
  Tail<float> a(x + whole, rest);
  Store(a.values, CanonicalizeNan(SoftCap(Load<Lanes>(a.values), by, limit)));
  a.CopyTo(x + whole, rest);
}

// Sixteen pairs: x0' = fma(x0, cos, -(x1 sin)), x1' = fma(x1, cos, x0 sin).
void RotatePairs(bf16* low, bf16* high, const float* cos, const float* sin) {
  const Lanes x0 = LoadBf16<Lanes>(low), x1 = LoadBf16<Lanes>(high);
  const Lanes c = Load<Lanes>(cos), s = Load<Lanes>(sin);
  StoreBf16(low, Fma(x0, c, Sub(Splat<Lanes>(-0.0f), Mul(x1, s))));  // -0 - y = -y, exactly
  StoreBf16(high, Fma(x1, c, Mul(x0, s)));
}

void Rope(bf16* head, int64_t d, const float* cos, const float* sin) {
  const int64_t half = d / 2, whole = half / kLanes * kLanes, rest = half - whole;
  for (int64_t i = 0; i < whole; i += kLanes)
    RotatePairs(head + i, head + half + i, cos + i, sin + i);
  if (rest == 0) return;
  Tail<bf16> low(head + whole, rest), high(head + half + whole, rest);
  const Tail<float> c(cos + whole, rest), s(sin + whole, rest);
  RotatePairs(low.values, high.values, c.values, s.values);
  low.CopyTo(head + whole, rest);
  high.CopyTo(head + half + whole, rest);
}

float Quantize(const bf16* x, int64_t n, int8_t* numbers) {
  const Lanes max = Splat<Lanes>(127.0f), min = Splat<Lanes>(-127.0f);
  Lanes top = Splat<Lanes>(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes v = LoadBf16<Lanes>(x + i);
    top = Max(Max(v, Sub(Splat<Lanes>(0.0f), v)), top);
  }
  constexpr float kLargestBf16 = 0x1.fep127f;
  const float largest = FoldMax(top);
  const float scale = (largest < kLargestBf16 ? largest : kLargestBf16) / 127.0f;
  const Lanes inverse = Splat<Lanes>(scale > 0 ? 1.0f / scale : 0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes bounded = Min(Max(Mul(LoadBf16<Lanes>(x + i), inverse), min), max);
    alignas(64) uint32_t bits[kLanes];  // the integer is in the low bits of the sum
    Store(reinterpret_cast<float*>(bits), Add(bounded, Splat<Lanes>(0x1.8p23f)));
    for (int lane = 0; lane < kLanes; ++lane) numbers[i + lane] = static_cast<int8_t>(bits[lane]);
  }
  return scale;
}

}  // namespace
#endif
}  // namespace baton
