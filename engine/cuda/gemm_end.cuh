// Ends of matrix products: what becomes of the sums that a thread has. Values are bit for bit those
// of engine/cpu/linear/gemm_epilogue.h and engine/numerics/{bf16,exp2,gelu}.h, whose functions
// stand here once more as device code; but denormals, which the CPU takes for zeros, are kept.
// Device code: nothing of CUDA's runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"

namespace baton {
namespace {

template <GemmEnd kEnd>
constexpr bool kIsGated = IsGated(kEnd);
template <GemmEnd kEnd>
constexpr bool kIsFp32 = IsFp32(kEnd);

// ---- two bf16 in 32 bits, the first one low ----

__device__ __forceinline__ float LowOf(uint32_t pair) {
  return __builtin_bit_cast(float, pair << 16);
}
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __builtin_bit_cast(float, pair & 0xffff0000u);
}

// Rounds to nearest even; a NaN becomes 0x7fc0.
__device__ __forceinline__ uint32_t RoundedPair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;  // the instruction has a NaN of its own, 0x7fff
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  if (low != low) pair &= 0xffff7fc0u;
  if (high != high) pair &= 0x7fc0ffffu;
  return pair;
#else
  const auto rounded = [](float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return value != value ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
#endif
}

// ---- functions of engine/numerics, in their order of operations ----

// Both return b where the two are unordered.
__device__ __forceinline__ float GreaterOf(float a, float b) { return a > b ? a : b; }
__device__ __forceinline__ float LesserOf(float a, float b) { return a < b ? a : b; }

// 2 to the power of f, a fraction, and of the whole number in the low bits of `shifted`.
__device__ __forceinline__ float Exp2OfParts(float f, float shifted) {
  float p = 0x1.5bba14p-10f;
  p = __builtin_fmaf(p, f, 0x1.3cea88p-7f);
  p = __builtin_fmaf(p, f, 0x1.c6b752p-5f);
  p = __builtin_fmaf(p, f, 0x1.ebf9bcp-3f);
  p = __builtin_fmaf(p, f, 0x1.62e42ap-1f);
  p = __builtin_fmaf(p, f, 1.0f);
  return __builtin_bit_cast(
      float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23));
}

__device__ __forceinline__ float Exp2Of(float value) {
  const float x = LesserOf(128.0f, GreaterOf(-127.0f, value));
  const float shifted = x + 0x1.8p23f;
  const float power = Exp2OfParts(x - (shifted - 0x1.8p23f), shifted);
  return x < -126.0f ? 0.0f : power;
}

__device__ __forceinline__ float SiluOf(float x) { return x / (1.0f + Exp2Of(x * -0x1.715476p0f)); }

__device__ __forceinline__ float GeluOf(float x) {
  const float a = LesserOf(14.0f, GreaterOf(x, 0.0f - x));
  const float b = LesserOf(5.0f, a);
  float r = -0x1.3a5e3ep-22f;
  r = __builtin_fmaf(r, b, 0x1.10f6d6p-18f);
  r = __builtin_fmaf(r, b, 0x1.c4138ap-17f);
  r = __builtin_fmaf(r, b, -0x1.7d618ep-11f);
  r = __builtin_fmaf(r, b, 0x1.075a9p-7f);
  r = __builtin_fmaf(r, b, -0x1.b53c44p-5f);
  r = __builtin_fmaf(r, b, 0x1.0cd49p-2f);
  r = __builtin_fmaf(r, b, -0x1.26b32cp0f);
  r = __builtin_fmaf(r, b, -0x1.ffffc2p-1f);
  const float tail = Exp2Of(__builtin_fmaf(a * a, -0x1.715476p-1f, r));
  return GreaterOf(0.0f, x) - a * tail;
}

__device__ __forceinline__ float GeluTanhOf(float x) {
  const float u = __builtin_fmaf(x * x, -0x1.a5a7dp-4f, -0x1.26aec2p1f);
  return x / (1.0f + Exp2Of(x * u));
}

// ---- outputs of two sums ----

__device__ __forceinline__ float CanonicalOf(float sum) {
  return sum == sum ? sum : __builtin_bit_cast(float, 0x7fc00000u);
}

// kBf16, kAdd (what is added) and kGelu.
template <GemmEnd kEnd>
__device__ __forceinline__ uint32_t PlainPair(float low, float high) {
  const uint32_t pair = RoundedPair(low, high);
  if (kEnd == GemmEnd::kGelu) return RoundedPair(GeluOf(LowOf(pair)), GeluOf(HighOf(pair)));
  return pair;
}

__device__ __forceinline__ uint32_t AddedPair(uint32_t x, uint32_t branch) {
  return RoundedPair(LowOf(x) + LowOf(branch), HighOf(x) + HighOf(branch));
}

// ---- gated outputs ----

// Exp2Of where no result leaves the normal numbers.
__device__ __forceinline__ float Exp2InRange(float x) {
  const float shifted = x + 0x1.8p23f;
  return Exp2OfParts(x - (shifted - 0x1.8p23f), shifted);
}

// Rounds as RoundedPair does, but a NaN becomes any NaN.
__device__ __forceinline__ uint32_t RoundedNumbers(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return RoundedPair(low, high);
#endif
}

// Gates whose magnitude lies from 2^-20 up to here: of these, and of no others, QuotientInRange is
// the correctly rounded quotient.
template <GemmEnd kEnd>
constexpr uint32_t kGateLimit = kEnd == GemmEnd::kSwiGlu ? 0x42a0 : 0x4100;  // bf16: 80, 8
constexpr uint32_t kMinGate = 0x3580;                                        // bf16: 2^-20

// Returns x / d of a gate in range and its d = 1 + 2^..., as __fdiv_rn does, without its cases. All
// 68,000 gates were tried with reciprocals up to 4 units beside the nearest; the instruction is
// within 1 (gemm_emulation_test does it again).
__device__ __forceinline__ float QuotientInRange(float x, float d, float reciprocal) {
  const float quotient = x * reciprocal;
  return __builtin_fmaf(__builtin_fmaf(-d, quotient, x), reciprocal, quotient);
}

// Returns d of a gate: x / d is its activation.
template <GemmEnd kEnd>
__device__ __forceinline__ float DivisorInRange(float x) {
  if constexpr (kEnd == GemmEnd::kSwiGlu) return 1.0f + Exp2InRange(x * -0x1.715476p0f);
  const float u = __builtin_fmaf(x * x, -0x1.a5a7dp-4f, -0x1.26aec2p1f);
  return 1.0f + Exp2InRange(x * u);
}

template <GemmEnd kEnd>
__device__ __forceinline__ float ActivationInRange(float x) {
  const float d = DivisorInRange<kEnd>(x);
#ifdef __CUDA_ARCH__
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
#else
  const float reciprocal = 1.0f / d;
#endif
  return QuotientInRange(x, d, reciprocal);
}

// Returns the outputs of gates in pairs, each with its up, into the place of the gates. Almost
// always all of them are numbers in range, which take a third of the instructions.
template <GemmEnd kEnd, int kPairs>
__device__ __forceinline__ void EndGated(uint32_t (&gates)[kPairs], const uint32_t (&ups)[kPairs]) {
  uint32_t beyond = 0, enough = 0x80008000u;  // the top bit of each half tells
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const uint32_t gate = gates[i] & 0x7fff7fffu, up = ups[i] & 0x7fff7fffu;
    beyond |= (gate + (0x8000u - kGateLimit<kEnd>)*0x10001u) | (up + 0x0080u * 0x10001u);
    enough &= gate + (0x8000u - kMinGate) * 0x10001u;
  }
  if (((beyond | ~enough) & 0x80008000u) == 0) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      gates[i] = RoundedNumbers(ActivationInRange<kEnd>(LowOf(gates[i])) * LowOf(ups[i]),
                                ActivationInRange<kEnd>(HighOf(gates[i])) * HighOf(ups[i]));
  } else {
    const auto active = [](float x) {
      return kEnd == GemmEnd::kSwiGlu ? SiluOf(x) : GeluTanhOf(x);
    };
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      gates[i] = RoundedPair(active(LowOf(gates[i])) * LowOf(ups[i]),
                             active(HighOf(gates[i])) * HighOf(ups[i]));
  }
}

// Returns the outputs of two gates, each with its up.
template <GemmEnd kEnd>
__device__ __forceinline__ uint32_t GatedPair(const float (&gates)[2], const float (&ups)[2]) {
  uint32_t pairs[1] = {RoundedNumbers(gates[0], gates[1])};
  EndGated<kEnd>(pairs, {RoundedNumbers(ups[0], ups[1])});
  return pairs[0];
}

// ---- a thread's share of a tile, rows of weights as columns ----

// Writes two neighbouring outputs from `at` on, or the first of them alone.
__device__ __forceinline__ void WritePair(uint16_t* at, uint32_t pair, bool both, bool is_aligned) {
  if (both && is_aligned) {
    *reinterpret_cast<uint32_t*>(at) = pair;
    return;
  }
  at[0] = static_cast<uint16_t>(pair);
  if (both) at[1] = static_cast<uint16_t>(pair >> 16);
}

__device__ __forceinline__ uint32_t ReadPair(const uint16_t* at, bool both, bool is_aligned) {
  if (both && is_aligned) return *reinterpret_cast<const uint32_t*>(at);
  return at[0] | (both ? static_cast<uint32_t>(at[1]) << 16 : 0u);
}

struct alignas(8) FloatPair {
  float low, high;
};

__device__ __forceinline__ void WritePair(float* at, float low, float high, bool both,
                                          bool is_aligned) {
  if (both && is_aligned) {
    *reinterpret_cast<FloatPair*>(at) = {low, high};
    return;
  }
  at[0] = low;
  if (both) at[1] = high;
}

// Adds the bias of two neighbouring columns.
__device__ __forceinline__ void AddBias(const GemmOutput& output, GemmShape shape, int column,
                                        float (&sums)[2][2]) {
  if (output.bias == nullptr) return;
  const float low = output.bias[column];
  const float high = column + 1 < shape.n ? output.bias[column + 1] : 0.0f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[half][0] = sums[half][0] + low;
    sums[half][1] = sums[half][1] + high;
  }
}

template <GemmEnd kEnd, int kSums>
__device__ __forceinline__ void EndFragmentAs(const GemmOutput& output, GemmShape shape, int row,
                                              int column, const float (&sums)[kSums]) {
  constexpr int kBlocks = kIsGated<kEnd> ? 2 : 1;  // of 8 columns, for one output
  const bool is_aligned =
      output.stride % 2 == 0 && (kIsFp32<kEnd> ? reinterpret_cast<uintptr_t>(output.fp32) % 8
                                               : reinterpret_cast<uintptr_t>(output.bf16) % 4) == 0;
#pragma unroll
  for (int block = 0; block < kSums / 4; block += kBlocks) {
    const int at = column + 8 * block;
    if (at >= shape.n) return;
    const bool both = at + 1 < shape.n;
    float values[kBlocks][2][2];  // of two rows
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j / 2][j % 2] = sums[4 * (block + i) + j];
      AddBias(output, shape, at + 8 * i, values[i]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int out_row = row + 8 * half;
      if (out_row >= shape.m) break;
      const int64_t first = static_cast<int64_t>(out_row) * output.stride;
      const float(&pair)[2] = values[0][half];
      if constexpr (kEnd == GemmEnd::kSums) {
        WritePair(output.fp32 + first + at, pair[0], pair[1], both, is_aligned);
      } else if constexpr (kEnd == GemmEnd::kFp32) {
        WritePair(output.fp32 + first + at, CanonicalOf(pair[0]), CanonicalOf(pair[1]), both,
                  is_aligned);
      } else if constexpr (kIsGated<kEnd>) {
        WritePair(output.bf16 + first + at / 16 * 8 + at % 8,
                  GatedPair<kEnd>(pair, values[kBlocks - 1][half]), true, is_aligned);
      } else {
        uint16_t* const place = output.bf16 + first + at;
        uint32_t out = PlainPair<kEnd>(pair[0], pair[1]);
        if (kEnd == GemmEnd::kAdd) out = AddedPair(ReadPair(place, both, is_aligned), out);
        WritePair(place, out, both, is_aligned);
      }
    }
  }
}

// Writes what the sums of a thread become: sum i is of row `row` + 8 * (i / 2 % 2) and column
// `column` + 8 * (i / 4) + i % 2, as mma.sync and wgmma leave them. `column` is even, and in gated
// products 8 * (column / 8) a multiple of 16.
template <int kSums>
__device__ __forceinline__ void EndFragment(const GemmOutput& output, GemmShape shape, int row,
                                            int column, const float (&sums)[kSums]) {
  switch (output.end) {
    case GemmEnd::kSums:
      return EndFragmentAs<GemmEnd::kSums>(output, shape, row, column, sums);
    case GemmEnd::kFp32:
      return EndFragmentAs<GemmEnd::kFp32>(output, shape, row, column, sums);
    case GemmEnd::kBf16:
      return EndFragmentAs<GemmEnd::kBf16>(output, shape, row, column, sums);
    case GemmEnd::kAdd:
      return EndFragmentAs<GemmEnd::kAdd>(output, shape, row, column, sums);
    case GemmEnd::kGelu:
      return EndFragmentAs<GemmEnd::kGelu>(output, shape, row, column, sums);
    case GemmEnd::kSwiGlu:
      if constexpr (kSums % 8 == 0)
        EndFragmentAs<GemmEnd::kSwiGlu>(output, shape, row, column, sums);
      return;
    case GemmEnd::kGeGlu:
      if constexpr (kSums % 8 == 0)
        EndFragmentAs<GemmEnd::kGeGlu>(output, shape, row, column, sums);
      return;
  }
}

// ---- a thread's share of a tile, rows of weights as rows ----

template <GemmEnd kEnd, int kTiles>
__device__ __forceinline__ void EndSwappedAs(const GemmOutput& output, GemmShape shape, int row,
                                             int weight, const float (&sums)[kTiles][4]) {
  const bool has_low = weight < shape.n, has_high = weight + 8 < shape.n;
  float bias[2] = {};
  if (output.bias != nullptr) {
    if (has_low) bias[0] = output.bias[weight];
    if (has_high) bias[1] = output.bias[weight + 8];
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int first_row = row + 8 * tile;
    if (first_row >= shape.m) return;
    float values[2][2];  // of two rows of the output, two weights
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j % 2][j / 2] = sums[tile][j];
      if (output.bias != nullptr) values[j % 2][j / 2] = sums[tile][j] + bias[j / 2];
    }
    const int64_t first = static_cast<int64_t>(first_row) * output.stride;
    if constexpr (kIsGated<kEnd>) {
      const float gates[2] = {values[0][0], values[1][0]}, ups[2] = {values[0][1], values[1][1]};
      const uint32_t pair = GatedPair<kEnd>(gates, ups);
      uint16_t* const place = output.bf16 + first + weight / 16 * 8 + weight % 8;
      if (has_low) place[0] = static_cast<uint16_t>(pair);
      if (has_low && first_row + 1 < shape.m)
        place[output.stride] = static_cast<uint16_t>(pair >> 16);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (first_row + half >= shape.m) break;
        const int64_t at = first + half * static_cast<int64_t>(output.stride) + weight;
        float(&pair)[2] = values[half];
        if constexpr (kIsFp32<kEnd>) {
          const bool is_raw = kEnd == GemmEnd::kSums;
          if (has_low) output.fp32[at] = is_raw ? pair[0] : CanonicalOf(pair[0]);
          if (has_high) output.fp32[at + 8] = is_raw ? pair[1] : CanonicalOf(pair[1]);
        } else {
          uint16_t* const place = output.bf16 + at;
          uint32_t out = PlainPair<kEnd>(pair[0], pair[1]);
          if (kEnd == GemmEnd::kAdd) {
            const uint32_t x = (has_low ? static_cast<uint32_t>(place[0]) : 0u) |
                               (has_high ? static_cast<uint32_t>(place[8]) << 16 : 0u);
            out = AddedPair(x, out);
          }
          if (has_low) place[0] = static_cast<uint16_t>(out);
          if (has_high) place[8] = static_cast<uint16_t>(out >> 16);
        }
      }
    }
  }
}

// Does the same for a product whose operands are swapped: sum j of tile i is of row `row` + 8 * i +
// j % 2 and weight `weight` + 8 * (j / 2); in gated products 8 * (weight / 8) is a multiple of 16.
template <int kTiles>
__device__ __forceinline__ void EndSwapped(const GemmOutput& output, GemmShape shape, int row,
                                           int weight, const float (&sums)[kTiles][4]) {
  switch (output.end) {
    case GemmEnd::kSums:
      return EndSwappedAs<GemmEnd::kSums>(output, shape, row, weight, sums);
    case GemmEnd::kFp32:
      return EndSwappedAs<GemmEnd::kFp32>(output, shape, row, weight, sums);
    case GemmEnd::kBf16:
      return EndSwappedAs<GemmEnd::kBf16>(output, shape, row, weight, sums);
    case GemmEnd::kAdd:
      return EndSwappedAs<GemmEnd::kAdd>(output, shape, row, weight, sums);
    case GemmEnd::kGelu:
      return EndSwappedAs<GemmEnd::kGelu>(output, shape, row, weight, sums);
    case GemmEnd::kSwiGlu:
      return EndSwappedAs<GemmEnd::kSwiGlu>(output, shape, row, weight, sums);
    case GemmEnd::kGeGlu:
      return EndSwappedAs<GemmEnd::kGeGlu>(output, shape, row, weight, sums);
  }
}

}  // namespace
}  // namespace baton
