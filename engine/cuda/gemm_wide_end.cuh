// Ends of matrix products (gemm_end.cuh) that write 16 bytes at once: the four lanes that have the
// sums of a row exchange them. All lanes of a warp call together. Device code: nothing of CUDA's
// runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/shared_piece.cuh"
#include "engine/cuda/warp.cuh"

namespace baton {
namespace {

// Lane t of four gets word t of each of them, in the order of the lanes.
__device__ __forceinline__ Piece TransposedByFour(Piece words, int t) {
  const bool is_odd = t % 2 != 0, is_high = t / 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = FromLaneAcross(is_odd ? words.pairs[i] : words.pairs[i + 1], 1);
    words.pairs[i] = is_odd ? other : words.pairs[i];
    words.pairs[i + 1] = is_odd ? words.pairs[i + 1] : other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = FromLaneAcross(is_high ? words.pairs[i] : words.pairs[i + 2], 2);
    words.pairs[i] = is_high ? other : words.pairs[i];
    words.pairs[i + 2] = is_high ? words.pairs[i + 2] : other;
  }
  return words;
}

// Writes the first `n` of eight outputs, if there are any.
__device__ __forceinline__ void WritePiece(uint16_t* at, const Piece& piece, int n,
                                           bool is_aligned) {
  if (n >= 8 && is_aligned) {
    *reinterpret_cast<Piece*>(at) = piece;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < n) at[i] = static_cast<uint16_t>(piece.pairs[i / 2] >> (16 * (i % 2)));
}

__device__ __forceinline__ Piece ReadPiece(const uint16_t* at, int n, bool is_aligned) {
  if (n >= 8 && is_aligned) return *reinterpret_cast<const Piece*>(at);
  Piece piece = {};
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < n) piece.pairs[i / 2] |= static_cast<uint32_t>(at[i]) << (16 * (i % 2));
  return piece;
}

template <int kSums>
__device__ __forceinline__ void AddBiases(const GemmOutput& output, GemmShape shape, int column,
                                          float (&sums)[kSums]) {
  if (output.bias == nullptr) return;
#pragma unroll
  for (int block = 0; block < kSums / 4; ++block) {
    const int at = column + 8 * block;
    const float low = at < shape.n ? output.bias[at] : 0.0f;
    const float high = at + 1 < shape.n ? output.bias[at + 1] : 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[4 * block + i] = sums[4 * block + i] + (i % 2 ? high : low);
  }
}

template <GemmEnd kEnd, int kSums>
__device__ __forceinline__ void EndWideFragmentAs(const GemmOutput& output, GemmShape shape,
                                                  int row, int column, int t,
                                                  const float (&sums)[kSums]) {
  constexpr int kBlocks = kIsGated<kEnd> ? 2 : 1;  // of 8 columns, for one output
  constexpr int kGroup = 4 * kBlocks;              // blocks whose outputs lanes exchange
  constexpr int kGroups = kSums / 4 / kGroup;
  // Groups at once: what is added is read before anything is written.
  constexpr int kBatch = kEnd != GemmEnd::kAdd ? 1
                         : kGroups % 4 == 0    ? 4
                         : kGroups % 2 == 0    ? 2
                                               : 1;
  static_assert(kSums / 4 % kGroup == 0 && kGroups % kBatch == 0);
  const bool is_aligned =
      output.stride % 8 == 0 && reinterpret_cast<uintptr_t>(output.bf16) % 16 == 0;
  const int first_column = (column - 2 * t) / kBlocks + 8 * t;  // of outputs
  const int n_outputs = shape.n / kBlocks;
  uint16_t* const first_output =
      output.bf16 + static_cast<int64_t>(row) * output.stride + first_column;
  const auto place = [&](int group, int half) {
    return first_output + half * 8 * static_cast<int64_t>(output.stride) + 32 * group;
  };
  const auto n_left = [&](int group, int half) {
    return row + 8 * half < shape.m ? n_outputs - first_column - 32 * group : 0;
  };
#pragma unroll
  for (int first = 0; first < kGroups; first += kBatch) {
    Piece x[kBatch][2];
#pragma unroll
    for (int i = 0; i < 2 * kBatch && kEnd == GemmEnd::kAdd; ++i)
      x[i / 2][i % 2] =
          ReadPiece(place(first + i / 2, i % 2), n_left(first + i / 2, i % 2), is_aligned);
#pragma unroll
    for (int i = 0; i < 2 * kBatch; ++i) {
      const int group = first + i / 2, half = i % 2;
      Piece words, ups;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * (group * kGroup + j * kBlocks) + 2 * half;  // of two sums
        if constexpr (kIsGated<kEnd>) {
          words.pairs[j] = RoundedNumbers(sums[at], sums[at + 1]);
          ups.pairs[j] = RoundedNumbers(sums[at + 4], sums[at + 5]);
        } else {
          words.pairs[j] = PlainPair<kEnd>(sums[at], sums[at + 1]);
        }
      }
      if constexpr (kIsGated<kEnd>) EndGated<kEnd>(words.pairs, ups.pairs);
      words = TransposedByFour(words, t);
      if constexpr (kEnd == GemmEnd::kAdd) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          words.pairs[j] = AddedPair(x[i / 2][half].pairs[j], words.pairs[j]);
      }
      WritePiece(place(group, half), words, n_left(group, half), is_aligned);
    }
  }
}

// Wide as far as 64 columns fill what lanes exchange, and 32 more if there are.
template <GemmEnd kEnd, int kSums>
__device__ __forceinline__ void EndGatedFragment(const GemmOutput& output, GemmShape shape, int row,
                                                 int column, int t, const float (&sums)[kSums]) {
  constexpr int kWide = kSums / 32 * 32;
  static_assert(kSums == kWide || kSums == kWide + 16);
  if constexpr (kWide > 0) {
    float wide[kWide];
#pragma unroll
    for (int i = 0; i < kWide; ++i) wide[i] = sums[i];
    EndWideFragmentAs<kEnd>(output, shape, row, column, t, wide);
  }
  if constexpr (kSums > kWide) {
    float last[kSums - kWide];
#pragma unroll
    for (int i = kWide; i < kSums; ++i) last[i - kWide] = sums[i];
    EndFragmentAs<kEnd>(output, shape, row, column + 2 * kWide, last);
  }
}

// As EndFragment, for warps whose lanes all call it for the same tile; t = lane % 4. Takes the
// sums.
template <int kSums>
__device__ __forceinline__ void EndWideFragment(const GemmOutput& output, GemmShape shape, int row,
                                                int column, int t, float (&sums)[kSums]) {
  AddBiases(output, shape, column, sums);
  GemmOutput rest = output;
  rest.bias = nullptr;
  switch (output.end) {
    case GemmEnd::kSums:
      return EndFragmentAs<GemmEnd::kSums>(rest, shape, row, column, sums);
    case GemmEnd::kFp32:
      return EndFragmentAs<GemmEnd::kFp32>(rest, shape, row, column, sums);
    case GemmEnd::kBf16:
      return EndWideFragmentAs<GemmEnd::kBf16>(rest, shape, row, column, t, sums);
    case GemmEnd::kAdd:
      return EndWideFragmentAs<GemmEnd::kAdd>(rest, shape, row, column, t, sums);
    case GemmEnd::kGelu:
      return EndWideFragmentAs<GemmEnd::kGelu>(rest, shape, row, column, t, sums);
    case GemmEnd::kSwiGlu:
      return EndGatedFragment<GemmEnd::kSwiGlu>(rest, shape, row, column, t, sums);
    case GemmEnd::kGeGlu:
      return EndGatedFragment<GemmEnd::kGeGlu>(rest, shape, row, column, t, sums);
  }
}

}  // namespace
}  // namespace baton
