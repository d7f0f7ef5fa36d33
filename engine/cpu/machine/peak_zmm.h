// Runs an instruction that adds products to the lanes of a zmm, for its peak (PeakKernel::run in
// peak_kernels.h). For kernel units.
#pragma once

#include <immintrin.h>

#include "engine/cpu/machine/peak_kernels.h"

namespace baton {
namespace {

// Independent sums: enough to hide the latency of the instruction, and few enough for the 32
// registers.
constexpr int kZmmChains = 24;

template <__m512 (*dot)(__m512 acc, __m512 a, __m512 b)>
float RunZmmPeak(const float* operands, int64_t iterations) {
  __m512 sums[kZmmChains];
#pragma GCC unroll 24
  for (int i = 0; i < kZmmChains; ++i) sums[i] = _mm512_load_ps(operands + 32 + 16 * i);
  const __m512 a = _mm512_load_ps(operands), b = _mm512_load_ps(operands + 16);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 24
    for (int i = 0; i < kZmmChains; ++i) sums[i] = dot(sums[i], a, b);
  }
  __m512 all = sums[0];
#pragma GCC unroll 24
  for (int i = 1; i < kZmmChains; ++i) all = _mm512_add_ps(all, sums[i]);
  return _mm512_reduce_add_ps(all);
}

}  // namespace
}  // namespace baton
