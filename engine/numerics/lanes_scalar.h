// The operations of lanes.h on one lane: the definition that the vector forms must match bit by
// bit.
//   Max(a, b), Min(a, b)      b where the two are unordered (as the instructions do)
//   AddExponent(p, m)         adds the low bits of m's representation to p's exponent field
//   ZeroBelow(x, limit, y)    x < limit ? +0 : y
//   RoundBf16(x)              x rounded to bf16, still as fp32
//   CanonicalizeNan(x)        the one NaN for any NaN
//   StoreInt8(to, x, y)       x, then y, rounded to the nearest integers, ties to even; the
//                             magnitudes are at most 127
#pragma once

#include "engine/numerics/bf16.h"

namespace baton {
namespace {

template <class L>
L Splat(float value);
template <class L>
L Load(const float* from);
template <class L>
L LoadBf16(const bf16* from);

template <>
[[maybe_unused]] inline float Splat<float>(float value) {
  return value;
}
template <>
[[maybe_unused]] inline float Load<float>(const float* from) {
  return *from;
}
template <>
[[maybe_unused]] inline float LoadBf16<float>(const bf16* from) {
  return Bf16ToFloat(*from);
}

[[maybe_unused]] inline void Store(float* to, float x) { *to = x; }
[[maybe_unused]] inline void StoreBf16(bf16* to, float x) { *to = FloatToBf16(x); }
[[maybe_unused]] inline void StoreInt8(int8_t* to, float x, float y) {
  constexpr float kInteger = 0x1.8p23f;  // with this addend fp32 has no fraction bits
  to[0] = static_cast<int8_t>((x + kInteger) - kInteger);
  to[1] = static_cast<int8_t>((y + kInteger) - kInteger);
}
[[maybe_unused]] inline float RoundBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }
[[maybe_unused]] inline float CanonicalizeNan(float x) {
  return x == x ? x : __builtin_bit_cast(float, kCanonicalNan);
}
[[maybe_unused]] inline float Add(float a, float b) { return a + b; }
[[maybe_unused]] inline float Sub(float a, float b) { return a - b; }
[[maybe_unused]] inline float Mul(float a, float b) { return a * b; }
[[maybe_unused]] inline float Div(float a, float b) { return a / b; }
[[maybe_unused]] inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
[[maybe_unused]] inline float Max(float a, float b) { return a > b ? a : b; }
[[maybe_unused]] inline float Min(float a, float b) { return a < b ? a : b; }
[[maybe_unused]] inline float AddExponent(float p, float m) {
  return __builtin_bit_cast(
      float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, m) << 23));
}
[[maybe_unused]] inline float ZeroBelow(float x, float limit, float y) {
  return x < limit ? 0.0f : y;
}

}  // namespace
}  // namespace baton
