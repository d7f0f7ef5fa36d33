// The kernels of RotateAndStore of rows.h: norm and RoPE of heads, which go to the queries or to
// pages. Rules as in rows.cuh. Device code: nothing of CUDA's runtime, so that tests can run it on
// an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/rows.cuh"

namespace baton {
namespace {

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

// Where a row's keys and values go.
struct RowPlace {
  int rope, position;
  uint16_t* keys;  // of head 0; null: the page is no page
};

__device__ __forceinline__ RowPlace PlaceOf(const RotateWork& work, int row) {
  const BlockView view = ViewOf(work.block);
  const int piece = work.pieces[work.from + row], position = view.positions[work.from + row];
  const int32_t entry = view.pages[view.page_begin[piece] + position / work.page_tokens];
  const int32_t page = entry >= -1 ? entry : -2 - entry;  // PageOf of engine/kv/kv_pool.h
  uint16_t* const keys = reinterpret_cast<uint16_t*>(work.kv + page * work.page_stride) +
                         position % work.page_tokens * int64_t{work.row};
  return {view.ropes[piece], position, page < 0 ? nullptr : keys};
}

// Returns where a head of a row goes.
__device__ __forceinline__ uint16_t* HeadPlace(const RotateWork& work, const RowPlace& place,
                                               int row, int head) {
  if (head < work.n_heads) return work.q + int64_t{row} * work.q_stride + head * work.row;
  // Heads of values follow those of keys.
  const int64_t list = int64_t{head - work.n_heads} * work.page_tokens;
  return place.keys == nullptr ? nullptr : place.keys + list * work.row;
}

__device__ __forceinline__ float RotatedOf(float own, float partner, bool is_low, float c,
                                           float s) {
  const float product = FlushedMul(partner, s);
  return FlushedFma(own, c, is_low ? -product : product);
}

// ---- heads whose halves are whole pieces: eight threads have kHeads heads of a row ----

constexpr int kPairThreads = 8;
constexpr int kBlockGroups = kRowThreads / kPairThreads;

// The sum of the squares of a head, by eight threads with two virtual lanes each.
__device__ __forceinline__ float SquaresOf(const uint16_t* head, int d, int thread) {
  float low = 0, high = 0;
#pragma unroll 8
  for (int i = 2 * thread; i < d; i += kVirtualLanes) {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(head + i);
    low = FlushedFma(LowOf(pair), LowOf(pair), low);
    high = FlushedFma(HighOf(pair), HighOf(pair), high);
  }
#pragma unroll
  for (int width = kPairThreads / 2; width > 0; width /= 2) {
    low = FlushedAdd(low, FromLaneAcross(low, width));
    high = FlushedAdd(high, FromLaneAcross(high, width));
  }
  return FlushedAdd(low, high);
}

// RMSNorm of the piece that begins at `column` of a head.
__device__ __forceinline__ void NormPiece(Piece& piece, const float* norm, int column,
                                          float inverse) {
  const PieceFloats weight = FloatsAt(norm, column, column + kPieceValues);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    piece.pairs[i] = RoundedPair(
        FlushedMul(FlushedMul(LowOf(piece.pairs[i]), inverse), weight.values[2 * i]),
        FlushedMul(FlushedMul(HighOf(piece.pairs[i]), inverse), weight.values[2 * i + 1]));
  }
}

__device__ __forceinline__ void RotatePieces(Piece& low, Piece& high, const PieceFloats& cos,
                                             const PieceFloats& sin) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t l = low.pairs[i], h = high.pairs[i];
    const float* const c = &cos.values[2 * i];
    const float* const s = &sin.values[2 * i];
    low.pairs[i] = RoundedPair(RotatedOf(LowOf(l), LowOf(h), true, c[0], s[0]),
                               RotatedOf(HighOf(l), HighOf(h), true, c[1], s[1]));
    high.pairs[i] = RoundedPair(RotatedOf(LowOf(h), LowOf(l), false, c[0], s[0]),
                                RotatedOf(HighOf(h), HighOf(l), false, c[1], s[1]));
  }
}

// head_dim is a multiple of 8 and rotary_dim one of 16. A thread has two pieces at a time: two that
// are rotated together, or two in a row behind them.
template <int kHeads, bool kIsNormed>
__global__ void __launch_bounds__(kRowThreads) RotatePiecesKernel(RotateWork work) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int n_heads = work.n_heads + 2 * work.n_kv_heads, d = work.head_dim;
  const int n_groups = (n_heads + kHeads - 1) / kHeads, thread = threadIdx.x % kPairThreads;
  const int index = blockIdx.x * kBlockGroups + threadIdx.x / kPairThreads;
  const bool is_there = index < work.n_rows * n_groups;
  const int row = is_there ? index / n_groups : 0;
  const int first = is_there ? index % n_groups * kHeads : 0;
  const uint16_t* const x = work.qkv + int64_t{row} * work.qkv_stride;
  const auto is_value = [&](int head) { return head >= work.n_heads + work.n_kv_heads; };
  float inverses[kHeads] = {};
  if (kIsNormed) {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      const int head = first + i < n_heads ? first + i : first;
      inverses[i] = InverseRootOf(SquaresOf(x + head * d, d, thread), d, work.eps);
    }
  }
  if (!is_there) return;

  const int half = work.rotary_dim / 2, n_pairs = half / kPieceValues;
  const int n_units = n_pairs + (work.row - work.rotary_dim) / (2 * kPieceValues);
#pragma unroll 1
  for (int unit = thread; unit < n_units; unit += kPairThreads) {
    const bool is_rotated = unit < n_pairs;
    const int low =
        is_rotated ? unit * kPieceValues : work.rotary_dim + (unit - n_pairs) * 2 * kPieceValues;
    const int high = low + (is_rotated ? half : kPieceValues);
    Piece pieces[kHeads][2] = {};
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      const uint16_t* const head = x + (first + i) * d;
      if (first + i >= n_heads) break;
      if (low < d) pieces[i][0] = *reinterpret_cast<const Piece*>(head + low);
      if (high < d) pieces[i][1] = *reinterpret_cast<const Piece*>(head + high);
    }
    const RowPlace place = PlaceOf(work, row);
    PieceFloats cos = {}, sin = {};
    if (is_rotated) {
      const int64_t at = int64_t{place.position} * half + low;
      cos = FloatsAt(work.cos[place.rope] + at, 0, kPieceValues);
      sin = FloatsAt(work.sin[place.rope] + at, 0, kPieceValues);
    }
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      const int head = first + i;
      if (head >= n_heads) break;
      const float* const norm = head < work.n_heads ? work.q_norm : work.k_norm;
      if (kIsNormed && norm != nullptr && !is_value(head)) {
        if (low < d) NormPiece(pieces[i][0], norm, low, inverses[i]);
        if (high < d) NormPiece(pieces[i][1], norm, high, inverses[i]);
      }
      if (is_rotated && !is_value(head)) RotatePieces(pieces[i][0], pieces[i][1], cos, sin);
      uint16_t* const to = HeadPlace(work, place, row, head);
      if (to == nullptr) continue;
      *reinterpret_cast<Piece*>(to + low) = pieces[i][0];
      *reinterpret_cast<Piece*>(to + high) = pieces[i][1];
    }
  }
}

// ---- any shape of head: sixteen threads have a head of a row ----

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

__global__ void __launch_bounds__(kRowThreads) RotateKernel(RotateWork work) {
  LetNextKernelBegin();
  WaitForKernelBefore();
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

  const RowPlace place = PlaceOf(work, row);
  const int rotary = is_value ? 0 : work.rotary_dim, half = work.rotary_dim / 2;
  const float* const cos = work.cos[place.rope] + int64_t{place.position} * half;
  const float* const sin = work.sin[place.rope] + int64_t{place.position} * half;
  uint16_t* const to = HeadPlace(work, place, row, head);
  if (to == nullptr) return;

  for (int column = 4 * thread; column < work.row; column += 4 * kHeadThreads) {
    FourValues own = {};
    if (column < d) {
      own = FourAt(x, column, d);
      normed(own, column);
    }
    if (column < rotary) {
      const auto rotate = [&](uint16_t& value, uint16_t partner, bool is_low, float c, float s) {
        value = Bf16OfFloat(RotatedOf(FloatOfBf16(value), FloatOfBf16(partner), is_low, c, s));
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

}  // namespace
}  // namespace baton
