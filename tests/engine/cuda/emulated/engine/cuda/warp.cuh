// Stands in for engine/cuda/warp.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline uint32_t FromLaneAcross(uint32_t value, int bits) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return EmulatedBlock::Now().Shuffle(value, lane ^ bits);
}
inline uint64_t FromLaneAcross(uint64_t value, int bits) {
  const uint64_t high = FromLaneAcross(static_cast<uint32_t>(value >> 32), bits);
  return high << 32 | FromLaneAcross(static_cast<uint32_t>(value), bits);
}
inline float FromLaneAcross(float value, int bits) {
  return __builtin_bit_cast(float, FromLaneAcross(__builtin_bit_cast(uint32_t, value), bits));
}
inline double FromLaneAcross(double value, int bits) {
  return __builtin_bit_cast(double, FromLaneAcross(__builtin_bit_cast(uint64_t, value), bits));
}

}  // namespace baton
