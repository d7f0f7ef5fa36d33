// The kernels of rows.h. Operations and their order are those of engine/cpu/rows/elementwise_rows.h
// and engine/numerics/{fold,tanh}.h, which stand here once more as device code. Device code:
// nothing of CUDA's runtime, so that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/block_view.h"
#include "engine/cuda/flushed_float.cuh"
#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/lane_fold.cuh"
#include "engine/cuda/shared_piece.cuh"
#include "engine/cuda/warp.cuh"

namespace baton {
namespace {

constexpr int kRowThreads = 256;  // of a block of all kernels but NormKernel
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

struct NormWork {
  const uint16_t* x;
  int x_stride;
  const int32_t* rows;  // of x; null: all in order
  int n_rows, width;
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

// The sums of a row that lies in shared memory. Both halves of a warp compute the same.
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

// What kThreads threads share: a row. Many rows take a warp each; few take a block each, whose
// threads have the weights on their way while one warp sums.
template <int kThreads>
constexpr int kNormRows = kThreads == 32 ? 4 : 1;
template <int kThreads>
constexpr int kNormBlock = kThreads* kNormRows<kThreads>;

constexpr int NormSharedBytes(int width) {
  return (width + kPieceValues - 1) / kPieceValues * static_cast<int>(sizeof(Piece));
}

template <int kThreads, bool kIsCentred>
__global__ void __launch_bounds__(kNormBlock<kThreads>) NormKernel(NormWork work) {
  constexpr bool kIsBlock = kThreads > 32;
  constexpr int kAhead = kIsBlock ? 2 : 0;  // pieces whose weights are read before the sums
  const int group = threadIdx.x / kThreads, thread = threadIdx.x % kThreads;
  const int row = blockIdx.x * kNormRows<kThreads> + group;
  if (row >= work.n_rows) return;
  const int width = work.width, n_pieces = (width + kPieceValues - 1) / kPieceValues;
  const int source = work.rows == nullptr ? row : work.rows[row];
  const uint16_t* const x = work.x + int64_t{source} * work.x_stride;
  const uint32_t staged =
      ((SharedBase() + 15u) & ~15u) + group * n_pieces * static_cast<int>(sizeof(Piece));
#pragma unroll 2
  for (int piece = thread; piece < n_pieces; piece += kThreads)
    CopyPiece(staged + piece * static_cast<int>(sizeof(Piece)), x + piece * kPieceValues, true);
  CommitCopies();
  PieceFloats weights[kAhead + 1] = {}, biases[kAhead + 1] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int column = (thread + i * kThreads) * kPieceValues;
    weights[i] = FloatsAt(work.weight, column, width);
    if (kIsCentred) biases[i] = FloatsAt(work.bias, column, width);
  }
  WaitForCopies<0>();

  NormFactors factors;
  if constexpr (kIsBlock) {
    __shared__ NormFactors shared_factors;
    __syncthreads();
    if (threadIdx.x < 32) {
      factors = NormFactorsOf<kIsCentred>(staged, width, work.eps);
      if (threadIdx.x == 0) shared_factors = factors;
    }
    __syncthreads();
    factors = shared_factors;
  } else {
    WarpBarrier();
    factors = NormFactorsOf<kIsCentred>(staged, width, work.eps);
  }

  uint16_t* const out = work.out + int64_t{row} * work.out_stride;
  const auto write = [&](int piece, const PieceFloats& weight, const PieceFloats& bias) {
    const auto value_of = [&](float value, int i) {
      if (!kIsCentred) return FlushedMul(FlushedMul(value, factors.inverse), weight.values[i]);
      const float centred = FlushedMul(FlushedSub(value, factors.mean), factors.inverse);
      return FlushedFma(centred, weight.values[i], bias.values[i]);
    };
    Piece normed = {};
    if (piece < n_pieces) {
      const Piece values = LoadSharedPiece(staged + piece * static_cast<int>(sizeof(Piece)));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        normed.pairs[i] = RoundedPair(value_of(LowOf(values.pairs[i]), 2 * i),
                                      value_of(HighOf(values.pairs[i]), 2 * i + 1));
      }
      normed = ZeroBehind(normed, piece * kPieceValues, width);
    }
    *reinterpret_cast<Piece*>(out + piece * kPieceValues) = normed;
  };
  const int n_out = work.out_stride / kPieceValues;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int piece = thread + i * kThreads;
    if (piece < n_out) write(piece, weights[i], biases[i]);
  }
#pragma unroll 2
  for (int piece = thread + kAhead * kThreads; piece < n_out; piece += kThreads) {
    const int column = piece * kPieceValues;
    PieceFloats weight = FloatsAt(work.weight, column, width), bias = {};
    if (kIsCentred) bias = FloatsAt(work.bias, column, width);
    write(piece, weight, bias);
  }
}

// ---- heads ----

struct RotateWork {
  const int32_t* block;
  const int32_t* pieces;
  int from, n_rows;  // of the block; row 0 of qkv and q is row `from`
  const uint16_t* qkv;
  int qkv_stride;
  uint16_t* q;
  int q_stride;
  int n_heads, n_kv_heads, head_dim, rotary_dim;
  int row;  // values of a head in q and in pages
  const float* cos[2];
  const float* sin[2];
  const float* q_norm;
  const float* k_norm;
  float eps;
  uint8_t* kv;
  int64_t page_stride;
  int page_tokens;
};

constexpr int kHeadThreads = kVirtualLanes;
constexpr int kBlockHeads = kRowThreads / kHeadThreads;

// Four bf16: what a thread writes at once.
struct alignas(8) FourValues {
  uint16_t values[4];
};

// The four values of a head from `column` on, those from `n` on zeros.
__device__ __forceinline__ FourValues FourAt(const uint16_t* head, int column, int n) {
  FourValues four = {};
  if (n % 4 == 0) return *reinterpret_cast<const FourValues*>(head + column);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < n) four.values[i] = head[column + i];
  return four;
}

// Returns where a key of the row lies; its value is n_kv_heads * page_tokens * row values on. Null:
// the page is no page.
__device__ __forceinline__ uint16_t* KeyPlace(const RotateWork& work, const BlockView& view,
                                              int piece, int position, int kv_head) {
  const int slot = position % work.page_tokens;
  const int32_t entry = view.pages[view.page_begin[piece] + position / work.page_tokens];
  const int32_t page = entry >= -1 ? entry : -2 - entry;  // PageOf of engine/kv/kv_pool.h
  if (page < 0) return nullptr;
  return reinterpret_cast<uint16_t*>(work.kv + page * work.page_stride) +
         (int64_t{kv_head} * work.page_tokens + slot) * work.row;
}

// Sixteen threads have a head of a row.
__global__ void __launch_bounds__(kRowThreads) RotateKernel(RotateWork work) {
  const int n_kv = work.n_kv_heads, n_heads = work.n_heads + 2 * n_kv;
  const int index = blockIdx.x * kBlockHeads + threadIdx.x / kHeadThreads;
  const int thread = threadIdx.x % kHeadThreads, d = work.head_dim;
  const bool is_there = index < work.n_rows * n_heads;
  const int row = is_there ? index / n_heads : 0, head = is_there ? index % n_heads : 0;
  const bool is_query = head < work.n_heads, is_value = head >= work.n_heads + n_kv;
  const uint16_t* const x = work.qkv + int64_t{row} * work.qkv_stride + head * d;

  const float* const norm = is_query ? work.q_norm : is_value ? nullptr : work.k_norm;
  float inverse = 0;
  if (work.q_norm != nullptr || work.k_norm != nullptr) {
    float squares = 0;
    for (int i = thread; i < d; i += kVirtualLanes)
      squares = FlushedFma(FloatOfBf16(x[i]), FloatOfBf16(x[i]), squares);
    inverse = InverseRootOf(FoldLanes(squares), d, work.eps);
  }
  if (!is_there) return;
  const auto normed = [&](FourValues& four, int column) {
    if (norm == nullptr) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i >= d) break;
      const float scaled = FlushedMul(FloatOfBf16(four.values[i]), inverse);
      four.values[i] = Bf16OfFloat(FlushedMul(scaled, norm[column + i]));
    }
  };

  const BlockView view = ViewOf(work.block);
  const int piece = work.pieces[work.from + row], position = view.positions[work.from + row];
  const int rotary = is_value ? 0 : work.rotary_dim, half = work.rotary_dim / 2;
  const int rope = rotary > 0 ? view.ropes[piece] : 0;
  const float* const cos = work.cos[rope] + int64_t{position} * half;
  const float* const sin = work.sin[rope] + int64_t{position} * half;
  uint16_t* to;
  if (is_query) {
    to = work.q + int64_t{row} * work.q_stride + head * work.row;
  } else {
    const int kv_head = (head - work.n_heads) % n_kv;
    to = KeyPlace(work, view, piece, position, kv_head);
    if (to == nullptr) return;
    if (is_value) to += int64_t{n_kv} * work.page_tokens * work.row;
  }

  for (int column = 4 * thread; column < work.row; column += 4 * kHeadThreads) {
    FourValues own = {};
    if (column < d) {
      own = FourAt(x, column, d);
      normed(own, column);
    }
    if (column < rotary) {
      const auto rotate = [&](uint16_t& value, uint16_t partner, bool is_low, float c, float s) {
        const float product = FlushedMul(FloatOfBf16(partner), s);
        value = Bf16OfFloat(FlushedFma(FloatOfBf16(value), c, is_low ? -product : product));
      };
      if (half % 4 == 0 && d % 4 == 0) {
        const bool is_low = column < half;
        const int pair = is_low ? column : column - half;
        FourValues partners = FourAt(x, is_low ? column + half : pair, d);
        normed(partners, is_low ? column + half : pair);
        const FourFloats c = *reinterpret_cast<const FourFloats*>(cos + pair);
        const FourFloats s = *reinterpret_cast<const FourFloats*>(sin + pair);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          rotate(own.values[i], partners.values[i], is_low, c.values[i], s.values[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (column + i >= rotary) break;
          const bool is_low = column + i < half;
          const int pair = is_low ? column + i : column + i - half;
          const int at = is_low ? pair + half : pair;
          FourValues partner = {x[at], 0, 0, 0};
          if (norm != nullptr) {
            partner.values[0] =
                Bf16OfFloat(FlushedMul(FlushedMul(FloatOfBf16(x[at]), inverse), norm[at]));
          }
          rotate(own.values[i], partner.values[0], is_low, cos[pair], sin[pair]);
        }
      }
    }
    *reinterpret_cast<FourValues*>(to + column) = own;
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
