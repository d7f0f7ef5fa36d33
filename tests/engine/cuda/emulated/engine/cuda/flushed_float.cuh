// Stands in for engine/cuda/flushed_float.cuh: the test's thread has the numerics MXCSR, so plain
// operations flush.
#pragma once

#include <xmmintrin.h>

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline float FlushedAdd(float a, float b) { return a + b; }
inline float FlushedSub(float a, float b) { return a - b; }
inline float FlushedMul(float a, float b) { return a * b; }
inline float FlushedFma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float FlushedDiv(float a, float b) { return a / b; }
inline float FlushedSqrt(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

}  // namespace baton
