// 2^x and silu of numerics v1 (docs/NUMERICS.md N6), one operation order for every path; units and
// MXCSR as in lanes.h.
//
// Exp2: x = n + f with n = round to nearest even of x, f exact in [-1/2, 1/2]; a degree-5
// polynomial p(f) with p(0) = 1 exactly, relative error 9.1e-8 (minimax under that condition, found
// by Remez exchange and rounded to fp32); n added to the exponent. So Exp2(integer) is exact. x <
// -126 gives +0 (FTZ), x >= 128 gives +inf, NaN gives NaN.
#pragma once

#include "engine/numerics/lanes_scalar.h"

namespace baton {
namespace {

// Exp2 for -127 <= x <= 127; the result below -126 is a denormal, which DAZ reads as +0.
template <class L>
inline L Exp2Between(L x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const L magic = Splat<L>(0x1.8p23f);
  const L shifted = Add(x, magic);
  const L f = Sub(x, Sub(shifted, magic));
  L p = Splat<L>(0x1.5bba14p-10f);
  p = Fma(p, f, Splat<L>(0x1.3cea88p-7f));
  p = Fma(p, f, Splat<L>(0x1.c6b752p-5f));
  p = Fma(p, f, Splat<L>(0x1.ebf9bcp-3f));
  p = Fma(p, f, Splat<L>(0x1.62e42ap-1f));
  p = Fma(p, f, Splat<L>(1.0f));
  return AddExponent(p, shifted);
}

template <class L>
inline L Exp2(L x) {
  x = Min(Splat<L>(128.0f), Max(Splat<L>(-127.0f), x));  // NaN passes
  return ZeroBelow(x, Splat<L>(-126.0f), Exp2Between(x));
}

// Exp2 for x <= 100, for callers that read the result with DAZ: it may be a denormal where Exp2
// gives +0.
template <class L>
inline L Exp2Weight(L x) {
  return Exp2Between(Max(Splat<L>(-127.0f), x));  // NaN passes
}

// RoundBf16 for weights: 0 <= x < 2^111, NaN stays NaN. An fp32 of the size of 2^16 x has units in
// the last place as large as those of bf16 at x, so x - 2^16 x is rounded to whole bf16 units. 2^16
// x is a whole number of these units, and an even one if x lies in the middle of two bf16s, so ties
// go to the even one.
template <class L>
inline L RoundWeight(L x) {
  const L up = Splat<L>(0x1p16f);
  return Fma(x, up, Fma(x, Splat<L>(-0x1p16f), x));
}

// x / (1 + e^-x), divided by IEEE rules.
template <class L>
inline L Silu(L x) {
  const L e = Exp2(Mul(x, Splat<L>(-0x1.715476p0f)));  // -log2 e
  return Div(x, Add(Splat<L>(1.0f), e));
}

}  // namespace
}  // namespace baton
