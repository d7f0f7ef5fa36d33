// Stands in for engine/cuda/attention_words.cuh. 2^x is the host's, so bits are not those of a GPU.
#pragma once

#include <cmath>

#include "engine/numerics/bf16.h"
#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline void LoadMatrices(uint32_t (&values)[4], uint32_t address) {
  EmulatedBlock::Now().LoadMatrices(values, address, false);
}
inline void LoadTransposed(uint32_t (&values)[4], uint32_t address) {
  EmulatedBlock::Now().LoadMatrices(values, address, true);
}
inline void StoreShared(uint32_t address, uint32_t value) {
  EmulatedBlock::Now().StoreShared(address, value);
}
inline void StoreSharedFloat(uint32_t address, float value) {
  StoreShared(address, __builtin_bit_cast(uint32_t, value));
}
inline float LoadSharedFloat(uint32_t address) {
  return __builtin_bit_cast(float, EmulatedBlock::Now().LoadShared(address));
}
inline void StoreSharedFloats(uint32_t address, const float (&values)[4]) {
  for (uint32_t i = 0; i < 4; ++i) StoreSharedFloat(address + 4 * i, values[i]);
}
inline void LoadSharedFloats(float (&values)[4], uint32_t address) {
  for (uint32_t i = 0; i < 4; ++i) values[i] = LoadSharedFloat(address + 4 * i);
}
inline int AddShared(uint32_t address, int value) {
  return EmulatedBlock::Now().AddShared(address, value);
}

inline float Exp2(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;
}
inline float Greater(float a, float b) { return std::fmax(a, b); }
inline float Quotient(float a, float b) { return a / b; }
inline float Fused(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t RoundedPair(float low, float high) {
  return uint32_t{FloatToBf16(high)} << 16 | FloatToBf16(low);
}

inline int ShuffleFrom(int value, int lane) {
  return static_cast<int>(EmulatedBlock::Now().Shuffle(static_cast<uint32_t>(value), lane));
}
inline float ShuffleXor(float value, int mask) {
  const int lane = static_cast<int>(EmulatedBlock::Now().thread_index().x % 32);
  return __builtin_bit_cast(
      float, EmulatedBlock::Now().Shuffle(__builtin_bit_cast(uint32_t, value), lane ^ mask));
}

inline void FenceMemory() {}
inline int AddGlobal(int* number, int value) {
  const int before = *number;
  *number = before + value;
  return before;
}
inline float LoadOfOthers(const float* value) { return *value; }
inline void LoadOfOthers(float (&values)[4], const float* at) {
  for (int i = 0; i < 4; ++i) values[i] = at[i];
}

}  // namespace baton
