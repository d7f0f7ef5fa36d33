// Rows of activations as int8 with one scale per row, for the integer linear layers: the same
// integers on every path. For kernel units.
#pragma once

#include <cstdint>

#include "engine/numerics/lanes.h"

namespace baton {
namespace {

struct RowScale {
  float scale = 0;    // x ~ integer * scale
  float inverse = 0;  // integer = x * inverse to the nearest, ties to even; 0: all are 0
};

// scale = absmax / 127. A row with NaN or infinity has the scale NaN, so all its outputs are NaN; a
// row whose absmax is below 2^-100 (where the inverse would overflow) is all zeros.
inline RowScale ScaleOfRow(const bf16* x, int64_t k) {
  constexpr int16_t kInfinity = 0x7f80, kSmallest = 27 << 7;
  constexpr int64_t kAtOnce = 16;
  typedef int16_t Magnitudes __attribute__((vector_size(2 * kAtOnce)));
  Magnitudes all = {};  // bf16s without sign are ordered as integers are
  int64_t i = 0;
  for (; i + kAtOnce <= k; i += kAtOnce) {
    Magnitudes next;
    __builtin_memcpy(&next, x + i, sizeof next);
    next &= 0x7fff;
    all = next > all ? next : all;
  }
  int16_t max = 0;
  for (int64_t lane = 0; lane < kAtOnce; ++lane) max = all[lane] > max ? all[lane] : max;
  for (; i < k; ++i) {
    const int16_t magnitude = static_cast<int16_t>(x[i] & 0x7fff);
    max = magnitude > max ? magnitude : max;
  }
  if (max >= kInfinity) return {__builtin_bit_cast(float, kCanonicalNan), 0};
  if (max < kSmallest) return {};
  const float largest = Bf16ToFloat(static_cast<bf16>(max));
  return {largest / 127.0f, 127.0f / largest};
}

// Quantises x[begin, begin + 32), with zeros from `k` on. Reads whole pieces of 32 that begin below
// k.
template <class L>
inline void QuantizeStep(const bf16* x, int64_t begin, int64_t k, RowScale row, int8_t* out) {
  if (begin >= k || row.inverse == 0) {
    for (int64_t i = 0; i < 32; ++i) out[i] = 0;
    return;
  }
  constexpr int64_t kLanes = sizeof(L) / sizeof(float);
  const L inverse = Splat<L>(row.inverse);
  for (int64_t i = 0; i < 32; i += 2 * kLanes) {
    const bf16* from = x + begin + i;
    StoreInt8(out + i, Mul(LoadBf16<L>(from), inverse), Mul(LoadBf16<L>(from + kLanes), inverse));
  }
}

}  // namespace
}  // namespace baton
