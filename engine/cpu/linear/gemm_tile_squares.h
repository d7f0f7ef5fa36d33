// Squares of bf16 and int8 weights for gemm_tile_nest.h: sums stay in four tile registers over a K
// block, and wait in scratch from one to the next.
//
//            block b   block b + 1
//   row t       C0         C1        [C0 C2 C1 C3] in scratch: [block][32 rows][16]
//   row t+1     C2         C3
//
// Loads go before products: the four products of a step then follow each other, and the loads of
// the next step run beside them (AMX Xeon, 2 cores, 512 rows, K 2,048: each load just before its
// product 2.55 TF of bf16, all before 2.61). An operand that is used once passes L1 by, so the
// other one stays there: a step whose weights come from L2 takes 24.7 ns instead of 31 to 33. For
// kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_nest.h"

namespace baton {
namespace {

constexpr int64_t kSquare = 4 * kSumTile;  // sums
constexpr int64_t kSquareBytes = kSquare * 4;
constexpr int64_t kSquareBlock = 2 * kSumTile;  // sums of one of its blocks

// Loads of rows and of weights, one of which bypasses L1.
template <class T, bool kRowsOnce>
struct SquareLoads {
  template <int t>
  static void Rows(const char* tile) {
    if constexpr (kRowsOnce) {
      T::template LoadOnce<t>(tile, 64);
    } else {
      T::template Load<t>(tile, 64);
    }
  }
  template <int t>
  static void Weights(const char* tile) {
    if constexpr (kRowsOnce) {
      T::template Load<t>(tile, 64);
    } else {
      T::template LoadOnce<t>(tile, 64);
    }
  }
};

template <class T>
inline void ZeroSquare() {
  T::template Zero<0>();
  T::template Zero<1>();
  T::template Zero<2>();
  T::template Zero<3>();
}
template <class T>
inline void LoadSquare(const float* sums) {
  T::template Load<0>(sums, 64);
  T::template Load<2>(sums + kSumTile, 64);
  T::template Load<1>(sums + 2 * kSumTile, 64);
  T::template Load<3>(sums + 3 * kSumTile, 64);
}
template <class T>
inline void StoreSquare(void* to) {
  float* const sums = static_cast<float*>(to);
  T::template Store<0>(sums, 64);
  T::template Store<2>(sums + kSumTile, 64);
  T::template Store<1>(sums + 2 * kSumTile, 64);
  T::template Store<3>(sums + 3 * kSumTile, 64);
}

// Where and how the outputs of a square are written.
struct LinesOut {
  bf16* halves;
  bool whole_lines;
};

// A square whose sums are complete: its outputs are written a few rows at a time beside the
// products of the next square, because vectors compute while tiles multiply. (AMX Xeon, 2 cores,
// 512 rows, K 2,048, N 16,384 with SwiGLU: bf16 0.85, int8 0.95 of the time of whole squares at
// once.)
//
// The lines of y to which the next square will be added are prefetched row by row meanwhile: they
// lie kilobytes apart, and often in the other core's cache. (The same machine, a step of a model,
// K and N 2,048: 0.88 of the time of 128 rows; 512 rows bf16 0.95 to 0.98, int8 0.84. N 16,384,
// which adds nothing: 0.99 to 1.02.)
template <class W>
class FinishedSquare {
 public:
  // Announces the square of row pair t and pair `pair` of a part, whose sums are computed now.
  void Expect(const LinearJob& job, const TilePart& part, int64_t t, int64_t pair) {
    if (job.epilogue != Epilogue::kResidualAdd) return;
    next_row_ = 32 * t;
    next_block_ = part.block + 2 * pair;
    is_expected_ = true;
    left_ = 32;
  }
  // The square of row pair t and pair `pair` of a part, with these sums.
  void Begin(const LinearJob& job, const TilePart& part, const LinesOut& lines, int64_t t,
             int64_t pair, const float* sums) {
    row_ = 32 * t;
    end_ = Min(row_ + 32, job.rows);
    block_ = part.block + 2 * pair;
    blocks_ = Min(2, part.end - block_);
    const PairSums square = {sums, kSquareBlock, row_, end_ - row_, block_, blocks_};
    line_part_ = LinePartOf(job, lines.whole_lines, square, part.first, part.end);
    halves_ = lines.halves;
    sums_ = sums;
    is_expected_ = false;
    left_ = 32;
  }
  // Writes the next n rows and prefetches n lines, if there are any left.
  inline __attribute__((always_inline)) void Rows(const LinearJob& job, const PackedTiles& tiles,
                                                  int64_t n) {
    if (left_ > 0) Write(job, tiles, n);
  }
  void AllRows(const LinearJob& job, const PackedTiles& tiles) { Rows(job, tiles, left_); }

 private:
  // noinline: inside the loops of tiles it would take their registers.
  __attribute__((noinline)) void Write(const LinearJob& job, const PackedTiles& tiles, int64_t n) {
    left_ -= n;
    if (is_expected_) {
      PrefetchOutputs(job, next_row_, n, next_block_, 2);
      next_row_ += n;
    }
    const int64_t rows = Min(n, end_ - row_);
    if (rows <= 0) return;
    const PairSums pair = {sums_, kSquareBlock, row_, rows, block_, blocks_};
    FinishPair(job, typename W::Outputs(job, tiles, block_, blocks_), pair, line_part_, halves_);
    sums_ += rows * 16;
    row_ += rows;
  }

  int64_t row_ = 0, end_ = 0;  // rows left
  int64_t block_ = 0, blocks_ = 0;
  int64_t left_ = 0;  // rows to write, or lines to prefetch
  LinePart line_part_ = LinePart::kNone;
  bf16* halves_ = nullptr;
  const float* sums_ = nullptr;  // sums of the next row
  bool is_expected_ = false;
  int64_t next_row_ = 0, next_block_ = 0;  // of the next square's lines
};

template <class T, class N, class W>
class PlainSquares {
 public:
  // Scratch: two squares, of which one is finished while the other is computed, then the sums [row
  // pair][pair of the part][square], if there are several K blocks.
  static int64_t ScratchBytes(const LinearJob& /*job*/, const PackedTiles& tiles, int64_t blocks) {
    const bool waits = tiles.block_tiles < tiles.k_tiles;
    return kSquareBytes * (2 + (waits ? tiles.row_tiles / 2 * ((blocks + 1) / 2) : 0));
  }
  PlainSquares(const LinearJob& job, const PackedTiles& tiles, LinesOut lines,
               const TilePart& /*part*/, void* scratch)
      : job_(job), tiles_(tiles), lines_(lines), ring_(static_cast<float*>(scratch)) {}

  void BeginKBlock(const TilePart& part) {
    part_ = part;
    weights_ = static_cast<const char*>(job_.weights) + part.block * job_.block_bytes +
               W::KBytes(job_, part.k);
    next_sums_ = {N::SumsAhead(job_) ? kSquareBytes : 0, part.k_tiles};
    rows_per_step_ = DivideUp(32, part.k_tiles);
  }
  int64_t Steps() const { return part_.k_tiles; }

  // rows: the rows of row pair t in this K block.
  inline __attribute__((always_inline)) void Add(const char* rows, int64_t t, int64_t pair,
                                                 TilesAhead* ahead) {
    const int64_t pairs = part_.pairs(), square = t * pairs + pair;
    float* const waiting = ring_ + kSquare * (2 + square);
    if (part_.k == 0) {
      ZeroSquare<T>();
    } else {
      LoadSquare<T>(waiting);
      ahead->sums = next_sums_.From(waiting + kSquare);
    }
    if (part_.is_last) finished_.Expect(job_, part_, t, pair);
    const char* const weights = weights_ + 2 * pair * job_.block_bytes;
    // Without a second block, the first block's weights are multiplied in its place.
    const bool has_second = 2 * pair + 1 < part_.blocks;
    AddSteps(rows, weights, has_second ? job_.block_bytes : 0, part_.k_tiles, ahead);
    if (!part_.is_last) return StoreSquare<T>(waiting);
    float* const sums = ring_ + turn_;
    turn_ ^= kSquare;
    StoreSquare<T>(sums);
    finished_.Begin(job_, part_, lines_, t, pair, sums);
  }
  void End() { finished_.AllRows(job_, tiles_); }

 private:
  inline __attribute__((always_inline)) void AddSteps(const char* rows, const char* weights,
                                                      int64_t next_block, int64_t k_tiles,
                                                      TilesAhead* ahead) {
    using Loads = SquareLoads<T, N::kRowsOnce>;
    TilesAhead next = *ahead;  // a copy in registers
    const int64_t next_rows = k_tiles * kTileBytes;
    for (const char* const end = rows + next_rows; rows != end;
         rows += kTileBytes, weights += kTileBytes) {
      Loads::template Rows<4>(rows);
      Loads::template Weights<6>(weights);
      Loads::template Weights<7>(weights + next_block);
      Loads::template Rows<5>(rows + next_rows);
      W::template Dot<T, 0, 4, 6>();
      W::template Dot<T, 1, 4, 7>();
      W::template Dot<T, 2, 5, 6>();
      W::template Dot<T, 3, 5, 7>();
      next.Step();
      finished_.Rows(job_, tiles_, rows_per_step_);
    }
    *ahead = next;
  }

  const LinearJob& job_;
  const PackedTiles& tiles_;
  LinesOut lines_;
  float* ring_;
  int64_t turn_ = 0;
  FinishedSquare<W> finished_;
  int64_t rows_per_step_ = 0;  // of the finished square
  TilePart part_ = {};
  LinesAhead<_MM_HINT_T0> next_sums_;
  const char* weights_ = nullptr;
};

}  // namespace
}  // namespace baton
