// tanh and the soft cap of numerics v1 (docs/NUMERICS.md N6), one operation order for every path;
// units and MXCSR as in lanes.h.
//
// tanh(x) = x P(x^2) / Q(x^2), both of degree 4, for |x| <= 9 (beyond, tanh is 1 to fp32), relative
// error 2.1e-8 before rounding (fitted by iterated weighted least squares in 60 digits, then
// rounded to fp32), below 4e-7 in fp32; never beyond 1. NaN gives NaN.
#pragma once

#include "engine/numerics/lanes_scalar.h"

namespace baton {
namespace {

template <class L>
inline L Tanh(L x) {
  const L bounded = Min(Splat<L>(9.0f), Max(Splat<L>(-9.0f), x));  // NaN passes
  const L u = Mul(bounded, bounded);
  L p = Splat<L>(0x1.cacfc4p-27f);
  p = Fma(p, u, Splat<L>(0x1.59bec4p-16f));
  p = Fma(p, u, Splat<L>(0x1.ca2a58p-9f));
  p = Fma(p, u, Splat<L>(0x1.120ad6p-3f));
  p = Fma(p, u, Splat<L>(1.0f));
  L q = Splat<L>(0x1.a177dap-21f);
  q = Fma(q, u, Splat<L>(0x1.588346p-12f));
  q = Fma(q, u, Splat<L>(0x1.a7f6eep-6f));
  q = Fma(q, u, Splat<L>(0x1.de5ab4p-2f));
  q = Fma(q, u, Splat<L>(1.0f));
  const L y = Div(Mul(bounded, p), q);
  return Min(Splat<L>(1.0f), Max(Splat<L>(-1.0f), y));
}

// cap * tanh(x * by). by: 1 / cap, times any scale of x.
template <class L>
inline L SoftCap(L x, L by, L cap) {
  return Mul(cap, Tanh(Mul(x, by)));
}

}  // namespace
}  // namespace baton
