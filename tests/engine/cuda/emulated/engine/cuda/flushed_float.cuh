// Stands in for engine/cuda/flushed_float.cuh: flushes by itself, so that the thread may keep
// denormals as a GPU does where a kernel does not flush.
#pragma once

#include <cmath>

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline float Flushed(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const bool is_denormal = (bits & 0x7f800000u) == 0;
  return is_denormal ? __builtin_bit_cast(float, bits & 0x80000000u) : value;
}
inline float FlushedAdd(float a, float b) { return Flushed(Flushed(a) + Flushed(b)); }
inline float FlushedSub(float a, float b) { return Flushed(Flushed(a) - Flushed(b)); }
inline float FlushedMul(float a, float b) { return Flushed(Flushed(a) * Flushed(b)); }
inline float FlushedFma(float a, float b, float c) {
  return Flushed(__builtin_fmaf(Flushed(a), Flushed(b), Flushed(c)));
}
inline float FlushedDiv(float a, float b) { return Flushed(Flushed(a) / Flushed(b)); }
inline float FlushedSqrt(float a) { return Flushed(std::sqrt(Flushed(a))); }

}  // namespace baton
