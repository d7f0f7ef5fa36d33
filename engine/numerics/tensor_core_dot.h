// A model, bit by bit, of the dot product that Hopper's tensor cores compute for bf16 operands with
// an fp32 accumulator (mma.sync m16n8k16 and wgmma k16): tests predict digests of the GPU with it,
// and the check on a GPU compares (docs/CUDA.md). Pure functions, any thread; far too slow to
// serve.
//
// Facts: MMA-Sim (github.com/microsoft/MMA-Sim; "bit-accurate reference model of tensor cores") and
// "Accurate models of NVIDIA tensor cores" (arXiv 2512.07004), both measured on H100. One step
// takes an accumulator c and 16 products, exact and not normalised (significands in [0, 4)):
//   emax = the largest exponent of c and the products
//   each term is cut, toward zero, to 25 fractional bits relative to 2^emax
//   the cut terms are summed exactly, and the sum is cut toward zero to fp32
// so the order of the 16 does not matter, and the membership and order of the groups does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/numerics/bf16.h"

namespace baton {

inline constexpr int kTensorCoreGroup = 16;  // products of one step

namespace tensor_core {

inline constexpr int kFractionalBits = 25;
inline constexpr int kMinExponent = -126;  // of bf16 and of fp32; subnormals have it, too
inline constexpr uint32_t kNan = 0x7fffffffu;
inline constexpr uint32_t kInfinity = 0x7f800000u;

// Value: sign * magnitude * 2^(exponent - fractional bits of its kind).
struct Term {
  bool is_negative = false;
  uint32_t magnitude = 0;
  int exponent = kMinExponent;
};

// Splits the bits of an fp32; a bf16 is the upper half of one. `drop`: bits that are zero at the
// end.
inline Term Split(uint32_t bits, int drop) {
  const int field = static_cast<int>(bits >> 23 & 0xff);
  const uint32_t fraction = bits & 0x7fffffu;
  const uint32_t hidden = field == 0 ? 0 : 0x800000u;
  return {bits >> 31 != 0, (fraction | hidden) >> drop, std::max(field, 1) - 127};
}

inline bool IsNan(uint32_t bits) { return (bits & 0x7fffffffu) > kInfinity; }
inline bool IsInfinite(uint32_t bits) { return (bits & 0x7fffffffu) == kInfinity; }
inline bool IsZero(uint32_t bits) { return (bits & 0x7fffffffu) == 0; }

// Returns a term in units of 2^(emax - 25), cut toward zero. `fraction_bits`: those of its
// magnitude.
inline int64_t Align(const Term& term, int fraction_bits, int emax) {
  const int shift = kFractionalBits - fraction_bits + term.exponent - emax;
  int64_t value = term.magnitude;
  value = shift >= 0 ? value << shift : shift <= -63 ? 0 : value >> -shift;
  return term.is_negative ? -value : value;
}

// Returns the fp32 of sum * 2^(emax - 25), cut toward zero. Beyond the range: an infinity.
inline uint32_t CutToFp32(int64_t sum, int emax) {
  if (sum == 0) return 0;  // +0, also of negative zeros
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int unit = emax - kFractionalBits;  // exponent of the last bit
  const int top = 63 - __builtin_clzll(magnitude);
  const int exponent = std::max(unit + top, kMinExponent);
  if (exponent > 127) return sign | kInfinity;
  const int shift = exponent - 23 - unit;  // bits to cut; negative: zeros to append
  const uint64_t significand = shift >= 0 ? magnitude >> std::min(shift, 63) : magnitude << -shift;
  const uint32_t hidden = static_cast<uint32_t>(significand >> 23);  // 0: subnormal
  return sign | static_cast<uint32_t>(exponent + 126 + static_cast<int>(hidden)) << 23 |
         (static_cast<uint32_t>(significand) & 0x7fffffu);
}

}  // namespace tensor_core

// Returns the accumulator after one step: bits of an fp32. `a`, `b`: 16 values each. A NaN, an
// infinity times zero, or infinities of both signs give the one NaN that the hardware writes; else
// an infinity gives itself.
inline uint32_t TensorCoreStep(uint32_t c, const bf16* a, const bf16* b) {
  using namespace tensor_core;
  std::array<Term, kTensorCoreGroup> products;
  Term start = Split(c, 0);
  bool is_nan = IsNan(c), has_plus = IsInfinite(c) && !start.is_negative,
       has_minus = IsInfinite(c) && start.is_negative;
  int emax = start.exponent;
  for (int i = 0; i < kTensorCoreGroup; ++i) {
    const uint32_t a_bits = static_cast<uint32_t>(a[i]) << 16, b_bits = static_cast<uint32_t>(b[i])
                                                                        << 16;
    const bool is_negative = (a_bits ^ b_bits) >> 31 != 0;
    const bool is_zero = IsZero(a_bits) || IsZero(b_bits);
    if (IsInfinite(a_bits) || IsInfinite(b_bits)) {
      is_nan = is_nan || is_zero;
      (is_negative ? has_minus : has_plus) = true;
    }
    is_nan = is_nan || IsNan(a_bits) || IsNan(b_bits);
    const Term left = Split(a_bits, 16), right = Split(b_bits, 16);
    products[i] = {is_negative, left.magnitude * right.magnitude, left.exponent + right.exponent};
    if (is_zero) products[i].exponent = kMinExponent;
    emax = std::max(emax, products[i].exponent);
  }
  if (is_nan || (has_plus && has_minus)) return kNan;
  if (has_plus || has_minus) return kInfinity | (has_minus ? 0x80000000u : 0);
  int64_t sum = Align(start, 23, emax);
  for (const Term& product : products) sum += Align(product, 14, emax);
  return CutToFp32(sum, emax);
}

// Returns the bits of the dot product of k values, k a multiple of 16, from the accumulator `c` on.
inline uint32_t TensorCoreDot(const bf16* a, const bf16* b, int64_t k, uint32_t c = 0) {
  for (int64_t at = 0; at < k; at += kTensorCoreGroup) c = TensorCoreStep(c, a + at, b + at);
  return c;
}

}  // namespace baton
