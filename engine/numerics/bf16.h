// bf16 of numerics v1 (docs/NUMERICS.md), for every unit, kernel units included: the upper half of
// an fp32, rounded to nearest even. Every NaN becomes one canonical NaN, because payloads depend on
// operand order and would differ between ISA paths.
#pragma once

#include <cstdint>

namespace baton {

using bf16 = uint16_t;

inline constexpr uint32_t kCanonicalNan = 0x7fc00000u;

// In an anonymous namespace: each kernel unit has its own copy with its own instructions.
namespace {

[[maybe_unused]] inline float Bf16ToFloat(bf16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

[[maybe_unused]] inline bf16 FloatToBf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16>(kCanonicalNan >> 16);
  return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace
}  // namespace baton
