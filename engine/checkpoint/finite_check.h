// Looks for NaN, infinite or absurdly large values in the bytes of a tensor, eight bytes at a time,
// so that hashing a file and checking it is one pass over memory. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

// Values of `bytes` bytes each, little-endian, with the sign in the top bit. A value is good if its
// other bits, as an integer, are below `limit`: a floating point value is good if its magnitude is
// smaller than the one `limit` encodes.
struct FiniteRule {
  int bytes;       // 1, 2 or 4
  uint32_t limit;  // 1 .. 2^(8 * bytes - 1)
};

// Limits of bf16: values below infinity; for fp32, values that do not round up to infinity in bf16.
inline constexpr FiniteRule kFiniteBf16{2, 0x7f80};
inline constexpr FiniteRule kFiniteFp16{2, 0x7c00};
inline constexpr FiniteRule kFiniteFp32{4, 0x7f7f8000};

// Index of the first value that is not good, or -1. `values` need not be aligned; its size is a
// whole number of values.
int64_t FirstBadValue(std::span<const std::byte> values, FiniteRule rule);

}  // namespace baton
