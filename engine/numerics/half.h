// IEEE half precision, exactly as fp32, NaN payloads too; for every unit, kernel units included.
// Pure function, any thread.
#pragma once

#include <cstdint>

namespace baton {

// In an anonymous namespace: each kernel unit has its own copy with its own instructions.
namespace {

[[maybe_unused]] inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return __builtin_bit_cast(float, sign | wide << 23 | fraction << 13);
}

}  // namespace
}  // namespace baton
