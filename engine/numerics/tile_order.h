// The tile order of numerics v1 on one output, the definition of every dot product over k on the
// CPU (docs/NUMERICS.md and engine/cpu/linear/linear.h say it in words). Needs -mfma (see lanes.h)
// and the compute pool's MXCSR.
#pragma once

#include <cstdint>

#include "engine/numerics/lanes_scalar.h"

namespace baton {
namespace {

// acc + sum over `groups` 32-k groups of a[k] * b[k], k = 0, 1, ...; a(k) and b(k) return fp32.
template <typename A, typename B>
inline float TileOrderDot(float acc, int64_t groups, const A& a, const B& b) {
  for (int64_t k = 0; k < groups * 32; k += 32) {
    float e = 0.0f, o = 0.0f;
    for (int64_t p = k; p < k + 32; p += 2) {
      e = Fma(a(p), b(p), e);
      o = Fma(a(p + 1), b(p + 1), o);
    }
    acc = Add(acc, Add(e, o));
  }
  return acc;
}

}  // namespace
}  // namespace baton
