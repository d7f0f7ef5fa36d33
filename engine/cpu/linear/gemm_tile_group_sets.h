// Sets of int4 blocks for gemm_tile_stream.h, up to two row tiles: weights are expanded to signed
// bytes a group at a time, and the exact sums of a group are folded into fp32 sums, both beside the
// products of another group.
//
//   a step: one group of one block, block after block
//     prefetch   a quarter of the lines of a later group of all four blocks
//     tiles      C0 C1 = the group's rows x wide[turn]
//     vectors    wide[1 - turn] = the next step's weights
//                sums = fma(fp32(ring[1 - turn]), scale, sums): the step before
//     tiles      ring[turn] = C0 C1
//
//   registers    C0 C1: sums of the row tiles; [2 3] [4 5]: their rows, one or two k tiles, loaded
//                once for the four blocks and past L1; [6 7]: weights
//
// Measured on an AMX Xeon with 2 cores, groups of 128, layers one after the other with packing and
// epilogue, GB/s of weights, before by vpdpbusd (gemm_integer.h) and from 17 rows on by squares
// (gemm_tile_groups.h); a plain read 35 to 39:
//
//   rows                     1     2     4     8    16    20    32
//   K 2,048, N 8,192      33.2  31.3  30.4  29.7  26.1  21.9  19.2
//     before              32.3  30.7  28.8  24.6  14.5  15.2  15.2
//   K 8,192, N 2,048      34.3  32.5  31.5  31.0  27.8        21.0
//     before              31.0  31.4  29.0  28.6  16.1        18.9
//
// 8 rows, K 2,048: 2, 8 blocks 28.0, 28.6; prefetches 1, 2, 3 KiB ahead 28.4, 28.9, 28.7; from
// several pages in turn to L2 (WeightsAhead) 26.5. Fewer operations to expand a line (16 * (value -
// 8) by a ternary; gf2p8affineqb) change nothing up to 8 rows: memory, packing and outputs bound
// it. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_groups.h"
#include "engine/cpu/linear/gemm_tile_stream.h"

namespace baton {
namespace {

template <class T, class W>
class GroupedSets {
  static constexpr int kBlocks = 4;
  static constexpr int64_t kAheadBytes = 2048;           // of each block
  static constexpr int64_t kRingBytes = 2 * kTileBytes;  // two row tiles
  static constexpr int64_t kWideBytes = 2 * kTileBytes;  // the largest group, expanded

 public:
  static constexpr int64_t kScratchBytes = 2 * kRingBytes + 2 * kWideBytes;
  static constexpr int Blocks(int /*row_tiles*/) { return kBlocks; }

  static void Add(const LinearJob& job, const PackedTiles& tiles, const StreamSet& set, float* sums,
                  void* scratch, FinishedSet<W>* finished) {
    GroupedSets groups(job, tiles, set, sums, scratch, finished);
    const int64_t group_tiles = job.group_k / W::TileK(job);
    if (tiles.row_tiles == 1) {
      group_tiles == 2 ? groups.template AddGroups<1, 2>() : groups.template AddGroups<1, 1>();
    } else {
      group_tiles == 2 ? groups.template AddGroups<2, 2>() : groups.template AddGroups<2, 1>();
    }
  }

 private:
  GroupedSets(const LinearJob& job, const PackedTiles& tiles, const StreamSet& set, float* sums,
              void* scratch, FinishedSet<W>* finished)
      : rows_(tiles.At(job, 0, 0)),
        next_rows_(tiles.k_tiles * kTileBytes),
        n_rows_(job.rows),
        groups_(job.k_padded / job.group_k),
        group_bytes_(job.group_bytes),
        lines_(job.group_k / 8),
        sums_(sums),
        ring_(static_cast<char*>(scratch)),
        wide_(ring_ + 2 * kRingBytes),
        finished_(finished),
        finish_(finished->PerStep(kBlocks * groups_)) {
    const char* const weights = static_cast<const char*>(job.weights) + set.block * job.block_bytes;
    // Missing blocks read the first block in their place; the results are not used.
    for (int b = 0; b < kBlocks; ++b) at_[b] = weights + (b < set.blocks ? b * job.block_bytes : 0);
    if (set.next < job.n_blocks) {
      to_next_ = (set.next - set.block) * job.block_bytes - groups_ * group_bytes_;
    }
  }

  // A group of a block whose products are in the ring.
  struct Fold {
    const char* ring;
    float* sums;
    const char* scales;
    __mmask16 has_sums;  // none: the first group, sums begin with +0
    inline __attribute__((always_inline)) void Rows(int64_t rows) const {
      const __m512 factors = _mm512_loadu_ps(scales);
      for (int64_t r = 0; r < rows; ++r) {
        const __m512 group = _mm512_cvtepi32_ps(_mm512_load_si512(ring + r * 64));
        const __m512 before = _mm512_maskz_loadu_ps(has_sums, sums + r * 16);
        _mm512_store_ps(sums + r * 16, _mm512_fmadd_ps(group, factors, before));
      }
    }
  };

  // kTiles: k tiles of a group.
  template <int kRowTiles, int kTiles>
  void AddGroups() {
    // Initially nothing waits to be folded: the first step folds arbitrary data into sums that are
    // overwritten afterwards.
    waiting_ = {ring_ + kRingBytes, sums_, at_[0], 0};
    const int64_t ahead_groups = Min(DivideUp(kAheadBytes, group_bytes_), groups_);
    ahead_ = ahead_groups * group_bytes_;
    ExpandGroup(at_[0] + kGroupScaleBytes, lines_, wide_);
    for (int64_t g = 0; g < groups_; ++g) {
      // Prefetches beyond the end of a block bring the beginning of the next set's.
      if (g + ahead_groups == groups_) ahead_ += to_next_;
      LoadRows<0, kTiles>();
      if constexpr (kRowTiles == 2) LoadRows<1, kTiles>();
      const auto has_sums = static_cast<__mmask16>(g == 0 ? 0 : 0xffff);
      Step<kRowTiles, kTiles, 0>(at_[1], has_sums);
      Step<kRowTiles, kTiles, 1>(at_[2], has_sums);
      Step<kRowTiles, kTiles, 2>(at_[3], has_sums);
      // After the last group, the first block's is expanded again and not used.
      Step<kRowTiles, kTiles, 3>(at_[0] + (g + 1 < groups_ ? group_bytes_ : 0), has_sums);
      rows_ += kTiles * kTileBytes;
      for (const char*& group : at_) group += group_bytes_;
    }
    waiting_.Rows(n_rows_);
  }

  // Multiplies the current group of block b. next: the group of the next step.
  template <int kRowTiles, int kTiles, int b>
  inline __attribute__((always_inline)) void Step(const char* next, __mmask16 has_sums) {
    constexpr int kTurn = b % 2;
    const char* const weights = wide_ + kTurn * kWideBytes;
    char* const ring = ring_ + kTurn * kRingBytes;
    Prefetch(b);
    T::template Load<6>(weights, 64);
    if constexpr (kTiles == 2) T::template Load<7>(weights + kTileBytes, 64);
    Multiply<0, kTiles>();
    if constexpr (kRowTiles == 2) Multiply<1, kTiles>();
    ExpandGroup(next + kGroupScaleBytes, lines_, wide_ + (1 - kTurn) * kWideBytes);
    waiting_.Rows(n_rows_);
    finished_->Rows(finish_);
    T::template Store<0>(ring, 64);
    if constexpr (kRowTiles == 2) T::template Store<1>(ring + kTileBytes, 64);
    waiting_ = {ring, sums_ + b * kRowTiles * kSumTile, at_[b], has_sums};
  }
  // Loads the group's rows of row tile t.
  template <int t, int kTiles>
  inline __attribute__((always_inline)) void LoadRows() const {
    const char* const rows = rows_ + t * next_rows_;
    T::template LoadOnce<2 + 2 * t>(rows, 64);
    if constexpr (kTiles == 2) T::template LoadOnce<3 + 2 * t>(rows + kTileBytes, 64);
  }
  template <int t, int kTiles>
  static inline __attribute__((always_inline)) void Multiply() {
    T::template Zero<t>();
    W::template Dot<T, t, 2 + 2 * t, 6>();
    if constexpr (kTiles == 2) W::template Dot<T, t, 3 + 2 * t, 7>();
  }

  // Prefetches a share of a later group's lines, scales and weights, of all blocks.
  inline __attribute__((always_inline)) void Prefetch(int64_t b) const {
    const int64_t share = DivideUp(lines_ + 1, kBlocks);
    const int64_t end = Min((b + 1) * share, lines_ + 1);
    for (int64_t line = b * share; line < end; ++line) {
#pragma GCC unroll 4
      for (const char* const group : at_) _mm_prefetch(group + ahead_ + line * 64, _MM_HINT_T0);
    }
  }

  const char* rows_;   // tiles of the current group
  int64_t next_rows_;  // bytes to those of the next row tile
  int64_t n_rows_, groups_, group_bytes_, lines_;
  const char* at_[kBlocks];          // the current group of each block
  int64_t ahead_ = 0, to_next_ = 0;  // bytes to what is prefetched, added behind the last group
  float* sums_;
  char* ring_;
  char* wide_;
  Fold waiting_ = {};
  FinishedSet<W>* finished_;
  int64_t finish_;  // finished rows that are written beside a step
};

}  // namespace
}  // namespace baton
