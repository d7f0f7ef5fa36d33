// The kernels of rows.h. Operations and their order are those of engine/cpu/rows/elementwise_rows.h
// and engine/numerics/{fold,tanh}.h, which stand here once more as device code. Device code:
// nothing of CUDA's runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/block_view.h"
#include "engine/cuda/dependent_launch.cuh"
#include "engine/cuda/flushed_float.cuh"
#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/lane_fold.cuh"
#include "engine/cuda/shared_piece.cuh"
#include "engine/cuda/warp.cuh"

namespace baton {
namespace {

constexpr int kRowThreads = 256;  // of a block
constexpr int kVirtualLanes = 16;
constexpr int kPieceValues = 8;

__device__ __forceinline__ float FloatOfBf16(uint16_t value) { return LowOf(value); }

__device__ __forceinline__ uint16_t Bf16OfFloat(float value) {
  return static_cast<uint16_t>(RoundedPair(value, 0.0f));
}

// Makes the values of columns from `width` on zeros; `column` is that of the first value.
__device__ __forceinline__ Piece ZeroBehind(Piece piece, int column, int width) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + 2 * i >= width) piece.pairs[i] = 0;
    if (column + 2 * i + 1 >= width) piece.pairs[i] &= 0xffffu;
  }
  return piece;
}

__device__ __forceinline__ float InverseRootOf(float squares, int n, float eps) {
  const float mean = FlushedDiv(squares, static_cast<float>(n));
  return FlushedDiv(1.0f, FlushedSqrt(FlushedAdd(mean, eps)));
}

// ---- rows of a step ----

__global__ void __launch_bounds__(kRowThreads)
    PrepareRowsKernel(const int32_t* block, int n_rows, const int32_t* sampled, int vocab,
                      StepRowsView rows) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const BlockView view = ViewOf(block);
  const int index = blockIdx.x * kRowThreads + threadIdx.x;
  if (index < n_rows) {
    int piece = 0;
    if (view.n_pieces == view.n_tokens) {
      piece = index;
    } else {
      for (int end = view.n_pieces; end - piece > 1;) {
        const int middle = (piece + end) / 2;
        (view.piece_begin[middle] <= index ? piece : end) = middle;
      }
    }
    rows.pieces[index] = piece;
    int32_t token = view.tokens[index];
    if (token < 0) {
      token = sampled == nullptr ? 0 : sampled[-1 - token];
      if (static_cast<uint32_t>(token) >= static_cast<uint32_t>(vocab)) token = 0;
    }
    rows.tokens[index] = token;
  }
  const int n_threads = (n_rows + kRowThreads - 1) / kRowThreads * kRowThreads;
  for (int i = index; i < view.n_logits; i += n_threads) rows.logit_rows[i] = view.logit_rows[i];
  for (int i = index; i < view.n_scored; i += n_threads) rows.scored_rows[i] = view.scored_rows[i];
}

// ---- embeddings and sums, a piece per thread ----

__global__ void __launch_bounds__(kRowThreads)
    EmbedKernel(const int32_t* tokens, int n_rows, const uint16_t* table, int width, float scale,
                uint16_t* x, int stride) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int n_pieces = stride / kPieceValues;
  const int index = blockIdx.x * kRowThreads + threadIdx.x, row = index / n_pieces;
  if (row >= n_rows) return;
  const int column = (index - row * n_pieces) * kPieceValues;
  Piece piece = *reinterpret_cast<const Piece*>(table + int64_t{tokens[row]} * stride + column);
  if (scale != 1.0f) {
#pragma unroll
    for (uint32_t& pair : piece.pairs)
      pair = RoundedPair(FlushedMul(LowOf(pair), scale), FlushedMul(HighOf(pair), scale));
  }
  *reinterpret_cast<Piece*>(x + int64_t{row} * stride + column) = ZeroBehind(piece, column, width);
}

__global__ void __launch_bounds__(kRowThreads)
    AddKernel(const uint16_t* y, int y_stride, int n_rows, int width, uint16_t* x, int x_stride) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int n_pieces = (width + kPieceValues - 1) / kPieceValues;
  const int index = blockIdx.x * kRowThreads + threadIdx.x, row = index / n_pieces;
  if (row >= n_rows) return;
  const int column = (index - row * n_pieces) * kPieceValues;
  const Piece addend = *reinterpret_cast<const Piece*>(y + int64_t{row} * y_stride + column);
  Piece* const place = reinterpret_cast<Piece*>(x + int64_t{row} * x_stride + column);
  Piece sum = *place;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum.pairs[i] = RoundedPair(FlushedAdd(LowOf(sum.pairs[i]), LowOf(addend.pairs[i])),
                               FlushedAdd(HighOf(sum.pairs[i]), HighOf(addend.pairs[i])));
  }
  *place = ZeroBehind(sum, column, width);
}

// ---- norms ----

// Bytes from one row of a block to the next in shared memory: half warps that read two rows at once
// hit other banks.
constexpr int NormPitch(int width) { return (width + 63) / 64 * 128 + 32; }

struct NormWork {
  const uint16_t* x;
  int x_stride;
  const int32_t* rows;       // of x; null: all in order
  int n_rows, width, pitch;  // NormPitch(width)
  const float* weight;
  const float* bias;  // null: RMSNorm
  float eps;
  uint16_t* out;
  int out_stride;
};

// Values that stand beside a piece: weights or biases.
struct PieceFloats {
  float values[kPieceValues];
};

struct alignas(16) FourFloats {
  float values[4];
};

__device__ __forceinline__ PieceFloats FloatsAt(const float* from, int column, int width) {
  PieceFloats floats = {};
  if (column + kPieceValues <= width) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const FourFloats four = *reinterpret_cast<const FourFloats*>(from + column + 4 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) floats.values[4 * i + j] = four.values[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPieceValues; ++i)
      if (column + i < width) floats.values[i] = from[column + i];
  }
  return floats;
}

struct NormFactors {
  float mean, inverse;
};

// Calls add(value) for each value of this thread's virtual lane, of a row that lies in shared
// memory, in their order. Reads are a batch ahead of the sums, which wait for each other.
template <typename AddFn>
__device__ __forceinline__ void ForLane(uint32_t row, int width, const AddFn& add) {
  constexpr int kBatch = 16, kStep = kVirtualLanes * static_cast<int>(sizeof(uint16_t));
  const int lane = threadIdx.x % kVirtualLanes, n_batches = width / (kBatch * kVirtualLanes);
  uint32_t at = row + lane * static_cast<int>(sizeof(uint16_t));
  float ahead[kBatch];
  const auto read = [&] {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) ahead[i] = LoadSharedBf16(at + i * kStep);
    at += kBatch * kStep;
  };
  if (n_batches > 0) {
    read();
#pragma unroll 1
    for (int batch = 1; batch < n_batches; ++batch) {
      float values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) values[i] = ahead[i];
      read();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) add(values[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) add(ahead[i]);
  }
#pragma unroll 1
  for (int i = n_batches * kBatch * kVirtualLanes + lane; i < width; i += kVirtualLanes)
    add(LoadSharedBf16(row + i * static_cast<int>(sizeof(uint16_t))));
}

// The sums of a row that lies in shared memory; sixteen threads have the row.
template <bool kIsCentred>
__device__ __forceinline__ NormFactors NormFactorsOf(uint32_t row, int width, float eps) {
  NormFactors factors = {};
  if (kIsCentred) {
    float sum = 0;
    ForLane(row, width, [&](float value) { sum = FlushedAdd(sum, value); });
    factors.mean = FlushedDiv(FoldLanes(sum), static_cast<float>(width));
  }
  float squares = 0;
  ForLane(row, width, [&](float value) {
    if (kIsCentred) value = FlushedSub(value, factors.mean);
    squares = FlushedFma(value, value, squares);
  });
  factors.inverse = InverseRootOf(FoldLanes(squares), width, eps);
  return factors;
}

// A block has one row or two. While one warp sums, a half of it per row, the others wait and have
// the weights at hand.
template <int kRows, bool kIsCentred>
__global__ void __launch_bounds__(kRowThreads, kRows == 1 ? 1 : 8) NormKernel(NormWork work) {
  static_assert(kRows <= 2);
  // Pieces whose weights are read before the sums. Many rows hide it that none are.
  constexpr int kAhead = kRows == 1 ? 2 : 0;
  __shared__ NormFactors shared_factors[kRows];
  LetNextKernelBegin();
  const int thread = threadIdx.x, first = blockIdx.x * kRows;
  const int width = work.width, n_pieces = (width + kPieceValues - 1) / kPieceValues;
  PieceFloats weights[kAhead + 1] = {}, biases[kAhead + 1] = {};  // no kernel writes them
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = (thread + i * kRowThreads) * kPieceValues;
    weights[i] = FloatsAt(work.weight, column, width);
    if (kIsCentred) biases[i] = FloatsAt(work.bias, column, width);
  }
  WaitForKernelBefore();
  const int n_rows = work.n_rows - first < kRows ? work.n_rows - first : kRows;
  const uint16_t* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + (r < n_rows ? r : 0);
    x[r] = work.x + int64_t{work.rows == nullptr ? row : work.rows[row]} * work.x_stride;
  }
  const uint32_t staged = (SharedBase() + 15u) & ~15u;
  const auto place = [&](int r, int piece) {
    return staged + r * work.pitch + piece * static_cast<int>(sizeof(Piece));
  };
#pragma unroll 2
  for (int piece = thread; piece < n_pieces; piece += kRowThreads) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) CopyPiece(place(r, piece), x[r] + piece * kPieceValues, true);
  }
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  if (thread < 32) {
    const int r = thread / (32 / kRows);
    const NormFactors factors = NormFactorsOf<kIsCentred>(place(r, 0), width, work.eps);
    if (thread % (32 / kRows) == 0) shared_factors[r] = factors;
  }
  __syncthreads();

  const auto write = [&](int piece, const PieceFloats& weight, const PieceFloats& bias) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const NormFactors factors = shared_factors[r];
      const auto value_of = [&](float value, int i) {
        if (!kIsCentred) return FlushedMul(FlushedMul(value, factors.inverse), weight.values[i]);
        const float centred = FlushedMul(FlushedSub(value, factors.mean), factors.inverse);
        return FlushedFma(centred, weight.values[i], bias.values[i]);
      };
      Piece normed = {};
      if (piece < n_pieces) {
        const Piece values = LoadSharedPiece(place(r, piece));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          normed.pairs[i] = RoundedPair(value_of(LowOf(values.pairs[i]), 2 * i),
                                        value_of(HighOf(values.pairs[i]), 2 * i + 1));
        }
        normed = ZeroBehind(normed, piece * kPieceValues, width);
      }
      uint16_t* const out = work.out + int64_t{first + r} * work.out_stride;
      if (r < n_rows) *reinterpret_cast<Piece*>(out + piece * kPieceValues) = normed;
    }
  };
  const int n_out = work.out_stride / kPieceValues;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int piece = thread + i * kRowThreads;
    if (piece < n_out) write(piece, weights[i], biases[i]);
  }
#pragma unroll 1
  for (int piece = thread + kAhead * kRowThreads; piece < n_out; piece += kRowThreads) {
    const int column = piece * kPieceValues;
    PieceFloats weight = FloatsAt(work.weight, column, width), bias = {};
    if (kIsCentred) bias = FloatsAt(work.bias, column, width);
    write(piece, weight, bias);
  }
}

// ---- logits ----

constexpr int kFinishedOfThread = 4;

__device__ __forceinline__ float TanhOf(float x) {
  const float bounded = LesserOf(9.0f, GreaterOf(-9.0f, x));
  const float u = FlushedMul(bounded, bounded);
  float p = 0x1.cacfc4p-27f;
  p = FlushedFma(p, u, 0x1.59bec4p-16f);
  p = FlushedFma(p, u, 0x1.ca2a58p-9f);
  p = FlushedFma(p, u, 0x1.120ad6p-3f);
  p = FlushedFma(p, u, 1.0f);
  float q = 0x1.a177dap-21f;
  q = FlushedFma(q, u, 0x1.588346p-12f);
  q = FlushedFma(q, u, 0x1.a7f6eep-6f);
  q = FlushedFma(q, u, 0x1.de5ab4p-2f);
  q = FlushedFma(q, u, 1.0f);
  const float y = FlushedDiv(FlushedMul(bounded, p), q);
  return LesserOf(1.0f, GreaterOf(-1.0f, y));
}

__global__ void __launch_bounds__(kRowThreads)
    FinishLogitsKernel(float* logits, int64_t n, float cap) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int64_t first = int64_t{blockIdx.x} * kRowThreads * kFinishedOfThread + threadIdx.x;
  const float by = FlushedDiv(1.0f, cap);
#pragma unroll
  for (int i = 0; i < kFinishedOfThread; ++i) {
    const int64_t at = first + i * kRowThreads;
    if (at >= n) break;
    const float x = logits[at];
    if (cap != 0.0f) {
      logits[at] = CanonicalOf(FlushedMul(cap, TanhOf(FlushedMul(x, by))));
    } else if (x != x) {
      logits[at] = CanonicalOf(x);
    }
  }
}

}  // namespace
}  // namespace baton
