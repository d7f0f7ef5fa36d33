// GELU of numerics v1 (docs/NUMERICS.md N6) in both forms, one operation order for every path;
// units and MXCSR as in lanes.h.
//
// Exact: x Phi(x), Phi the normal distribution. With a = |x| it is max(x, 0) - a Phi(-a), without
// cancellation, and log2 Phi(-a) = -a^2 log2(e) / 2 + r(a), where r is smooth: a polynomial of
// degree 8 on [0, 5] (minimax, by Remez exchange, rounded to fp32), within 2.6e-6; constant beyond,
// where the result is below 1e-6. Relative error below 4e-6 for |x| <= 5.
// Tanh form: x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
// NaN gives NaN; so does -inf in the tanh form.
#pragma once

#include "engine/numerics/exp2.h"

namespace baton {
namespace {

template <class L>
inline L Gelu(L x) {
  // From 14 on Exp2 is 0; the bound keeps an infinite x from being multiplied by that 0.
  const L a = Min(Splat<L>(14.0f), Max(x, Sub(Splat<L>(0.0f), x)));
  const L b = Min(Splat<L>(5.0f), a);
  L r = Splat<L>(-0x1.3a5e3ep-22f);
  r = Fma(r, b, Splat<L>(0x1.10f6d6p-18f));
  r = Fma(r, b, Splat<L>(0x1.c4138ap-17f));
  r = Fma(r, b, Splat<L>(-0x1.7d618ep-11f));
  r = Fma(r, b, Splat<L>(0x1.075a9p-7f));
  r = Fma(r, b, Splat<L>(-0x1.b53c44p-5f));
  r = Fma(r, b, Splat<L>(0x1.0cd49p-2f));
  r = Fma(r, b, Splat<L>(-0x1.26b32cp0f));
  r = Fma(r, b, Splat<L>(-0x1.ffffc2p-1f));
  const L tail = Exp2(Fma(Mul(a, a), Splat<L>(-0x1.715476p-1f), r));
  return Sub(Max(Splat<L>(0.0f), x), Mul(a, tail));
}

template <class L>
inline L GeluTanh(L x) {
  const L square = Mul(x, x);
  // -2 sqrt(2 / pi) log2(e), once times 0.044715
  const L u = Fma(square, Splat<L>(-0x1.a5a7dp-4f), Splat<L>(-0x1.26aec2p1f));
  return Div(x, Add(Splat<L>(1.0f), Exp2(Mul(x, u))));
}

}  // namespace
}  // namespace baton
