// Output of a matrix product: how its sums become outputs, and where these go.
#pragma once

#include <cstdint>

namespace baton {

// Rules N1, N2, N3 and N6 of docs/NUMERICS.md. A sum is an accumulator, plus the bias in one fp32
// addition.
enum class GemmEnd : int {
  kSums,    // the sum as it is, for checks: a NaN keeps the bits that the tensor core gave it
  kFp32,    // the sum; a NaN becomes 0x7fc00000
  kBf16,    // bf16(sum)
  kAdd,     // x = bf16(x + bf16(sum)) in place
  kSwiGlu,  // bf16(silu(bf16(gate)) * bf16(up))
  kGeGlu,   // bf16(gelu(bf16(gate)) * bf16(up)), GELU in its tanh form
  kGelu,    // bf16(gelu(bf16(sum))), GELU in its exact form
};

// Gated: rows 16 j to 16 j + 7 of the weights are rows 8 j to 8 j + 7 of the gate, the next 8 those
// of up. There are n / 2 outputs, and 16 divides n: rows of zeros fill it up, whose outputs are 0.
constexpr bool IsGated(GemmEnd end) { return end == GemmEnd::kSwiGlu || end == GemmEnd::kGeGlu; }
constexpr bool IsFp32(GemmEnd end) { return end == GemmEnd::kSums || end == GemmEnd::kFp32; }

struct GemmOutput {
  GemmEnd end = GemmEnd::kFp32;
  float* fp32 = nullptr;        // kSums, kFp32: (m, stride)
  uint16_t* bf16 = nullptr;     // all others: (m, stride); kAdd: the addend, too
  int stride = 0;               // values from one row to the next
  const float* bias = nullptr;  // (n), in the order of the weights; null: none
};

// The sums as they are, in rows of n side by side.
inline GemmOutput SumsOf(float* sums, int n) {
  GemmOutput output;
  output.end = GemmEnd::kSums;
  output.fp32 = sums;
  output.stride = n;
  return output;
}

}  // namespace baton
