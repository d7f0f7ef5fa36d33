// Squares of int4 weights for gemm_tile_nest.h: the exact sums of a group of k are folded into fp32
// sums, which wait in scratch, while tiles multiply the next group.
//
//   a step: one group of a square
//     tiles     zero C; for each k tile of the group: 4 loads, 4 products  ......  store C in ring
//     vectors        after every product: rows of the square before it:
//                    sum = fma(fp32(ring), scale, sum)
//
// The ring holds two squares: one is stored while the other is folded. C0 C2 C1 C3 are stored in
// this order, and sums have the same order: the first 32 rows then share the scales of the first
// block. Groups are innermost, so a square's 4 KiB of sums stay in L1. A K block is 512 k: 8 KiB of
// each block as tiles, expanded in scratch and used by all rows; expanded weights have no zero
// point (signed bytes), so sums need no start.
//
// Measured on an AMX Xeon with 2 cores, 512 rows, K 2,048, TOP/s in groups of 128 (64): a pair of
// blocks in L1 with folds after the products 3.3 (2.3), beside the next products 4.35 (2.96), no
// folds 5.0 (4.4); 16 blocks in L2 4.35 (3.1), 8 blocks 4.25 (3.1). The ports of L1 bound it: 256
// loads and 128 stores of lines in the 128 cycles of a group of 128. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_nest.h"
#include "engine/cpu/linear/gemm_tile_squares.h"

namespace baton {
namespace {

constexpr int64_t kGroupScaleBytes = 64;  // bytes before the weights of a group

// Expands a group to tiles: a line of 4-bit values becomes two lines of signed bytes.
inline void ExpandGroup(const char* lines, int64_t n_lines, char* tiles) {
  const __m512i low_half = _mm512_set1_epi8(15), zero_point = _mm512_set1_epi8(8);
  for (int64_t i = 0; i < n_lines; ++i, lines += 64, tiles += 128) {
    const __m512i line = _mm512_loadu_si512(lines);
    const __m512i low = _mm512_and_si512(line, low_half);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi32(line, 4), low_half);
    _mm512_store_si512(tiles, _mm512_sub_epi8(low, zero_point));
    _mm512_store_si512(tiles + 64, _mm512_sub_epi8(high, zero_point));
  }
}

// A group of a square whose products are in the ring.
struct GroupFold {
  const char* ring;
  float* sums;
  const char* scales[2];  // scales of the group's two blocks
  __mmask16 has_sums;     // none: the first group, sums begin with +0

  __m512 Scales(int b) const { return _mm512_loadu_ps(scales[b]); }
  // Folds rows [kFirst, kFirst + kRows) of 64, 32 rows per block. first, second: scales of the
  // blocks.
  template <int kFirst, int kRows>
  inline __attribute__((always_inline)) void Rows(__m512 first, __m512 second) const {
#pragma GCC unroll 16
    for (int r = kFirst; r < kFirst + kRows; ++r) {
      const __m512 group = _mm512_cvtepi32_ps(_mm512_load_si512(ring + r * 64));
      const __m512 before = _mm512_maskz_loadu_ps(has_sums, sums + r * 16);
      _mm512_store_ps(sums + r * 16, _mm512_fmadd_ps(group, r < 32 ? first : second, before));
    }
  }
};

template <class T, class N, class W>
class GroupedSquares {
 public:
  // Scratch: ring, expanded weights [block][tile] and a tile that is read beyond the last one, sums
  // [row pair][pair of the part][square].
  static int64_t ScratchBytes(const LinearJob& job, const PackedTiles& tiles, int64_t blocks) {
    return 2 * kSquareBytes + blocks * BlockTileBytes(job, tiles) + kTileBytes +
           tiles.row_tiles / 2 * ((blocks + 1) / 2) * kSquareBytes;
  }
  GroupedSquares(const LinearJob& job, const PackedTiles& tiles, LinesOut lines,
                 const TilePart& part, void* scratch)
      : job_(job),
        tiles_(tiles),
        lines_(lines),
        ring_(static_cast<char*>(scratch)),
        weights_(ring_ + 2 * kSquareBytes),
        sums_(static_cast<float*>(
            static_cast<void*>(weights_ + part.blocks * BlockTileBytes(job, tiles) + kTileBytes))),
        block_bytes_(BlockTileBytes(job, tiles)),
        group_tiles_(job.group_k / W::TileK(job)) {}

  void BeginKBlock(const TilePart& part) {
    part_ = part;
    groups_ = part.k_tiles / group_tiles_;
    packed_ = static_cast<const char*>(job_.weights) + part.block * job_.block_bytes +
              W::KBytes(job_, part.k);
    for (int64_t b = 0; b < part.blocks; ++b) {
      const char* group = packed_ + b * job_.block_bytes;
      char* to = weights_ + b * block_bytes_;
      for (int64_t g = 0; g < groups_; ++g, group += job_.group_bytes, to += GroupTileBytes(job_)) {
        ExpandGroup(group + kGroupScaleBytes, job_.group_k / 8, to);
      }
    }
    if (part.k == 0) {
      // Initially nothing waits to be folded: the first step folds arbitrary data into the ring's
      // other half, which is overwritten afterwards.
      waiting_ = {ring_ + kSquareBytes,
                  static_cast<float*>(static_cast<void*>(ring_)),
                  {packed_, packed_},
                  0};
      turn_ = 0;
      is_finished_ = false;
    }
  }
  int64_t Steps() const { return groups_; }

  // rows: the rows of row pair t in this K block.
  inline __attribute__((always_inline)) void Add(const char* rows, int64_t t, int64_t pair,
                                                 TilesAhead* ahead) {
    if (group_tiles_ == 2) {
      AddGroups<2>(rows, t, pair, ahead);
    } else {
      AddGroups<1>(rows, t, pair, ahead);
    }
  }
  // Folds the last group.
  void End() {
    const __m512 first = waiting_.Scales(0), second = waiting_.Scales(1);
    waiting_.Rows<0, 16>(first, second);
    waiting_.Rows<16, 16>(first, second);
    waiting_.Rows<32, 16>(first, second);
    waiting_.Rows<48, 16>(first, second);
    if (is_finished_) Finish();
  }

 private:
  using Loads = SquareLoads<T, N::kRowsOnce>;

  static int64_t GroupTileBytes(const LinearJob& job) { return job.group_k * 16; }
  static int64_t BlockTileBytes(const LinearJob& job, const PackedTiles& tiles) {
    return tiles.block_tiles * W::TileK(job) * 16;
  }

  // Multiplies a group of kTiles k tiles, and folds `waiting` meanwhile.
  template <int kTiles>
  static inline __attribute__((always_inline)) void Multiply(const char* rows, int64_t next_rows,
                                                             const char* weights,
                                                             int64_t next_block,
                                                             const GroupFold& waiting) {
    constexpr int kRows = 64 / (4 * kTiles);  // rows folded after each product
    const __m512 first = waiting.Scales(0), second = waiting.Scales(1);
    ZeroSquare<T>();
    MultiplyTile<0, kRows>(rows, next_rows, weights, next_block, waiting, first, second);
    if constexpr (kTiles == 2) {
      MultiplyTile<4 * kRows, kRows>(rows + kTileBytes, next_rows, weights + kTileBytes, next_block,
                                     waiting, first, second);
    }
  }
  template <int kFirst, int kRows>
  static inline __attribute__((always_inline)) void MultiplyTile(
      const char* rows, int64_t next_rows, const char* weights, int64_t next_block,
      const GroupFold& waiting, __m512 first, __m512 second) {
    Loads::template Rows<4>(rows);
    Loads::template Weights<6>(weights);
    Loads::template Weights<7>(weights + next_block);
    Loads::template Rows<5>(rows + next_rows);
    W::template Dot<T, 0, 4, 6>();
    waiting.Rows<kFirst, kRows>(first, second);
    W::template Dot<T, 1, 4, 7>();
    waiting.Rows<kFirst + kRows, kRows>(first, second);
    W::template Dot<T, 2, 5, 6>();
    waiting.Rows<kFirst + 2 * kRows, kRows>(first, second);
    W::template Dot<T, 3, 5, 7>();
    waiting.Rows<kFirst + 3 * kRows, kRows>(first, second);
  }

  template <int kTiles>
  inline __attribute__((always_inline)) void AddGroups(const char* rows, int64_t t, int64_t pair,
                                                       TilesAhead* ahead) {
    const bool has_second = 2 * pair + 1 < part_.blocks;
    const int64_t next_rows = part_.k_tiles * kTileBytes;
    const int64_t next_block = has_second ? block_bytes_ : 0;
    const int64_t next_scales = has_second ? job_.block_bytes : 0;
    const int64_t group_bytes = job_.group_bytes, tile_bytes = GroupTileBytes(job_);
    float* const sums = sums_ + (t * part_.pairs() + pair) * kSquare;
    const char* weights = weights_ + 2 * pair * block_bytes_;
    const char* scales = packed_ + 2 * pair * job_.block_bytes;
    const int64_t groups = groups_;
    GroupFold waiting = waiting_;
    for (int64_t g = 0; g < groups; ++g) {
      Multiply<kTiles>(rows, next_rows, weights, next_block, waiting);
      ahead->Step();
      if (is_finished_) Finish();
      char* const ring = ring_ + turn_;
      turn_ ^= kSquareBytes;
      StoreSquare<T>(ring);
      waiting = {ring,
                 sums,
                 {scales, scales + next_scales},
                 static_cast<__mmask16>(part_.k == 0 && g == 0 ? 0 : 0xffff)};
      rows += kTiles * kTileBytes;
      weights += tile_bytes;
      scales += group_bytes;
    }
    waiting_ = waiting;
    // The square's sums are complete when the waiting group is folded: one step into the next
    // square.
    finished_t_ = t;
    finished_pair_ = pair;
    is_finished_ = part_.is_last;
  }
  // All rows at once: the ports of L1 have no room for them beside the products (a tenth slower).
  void Finish() {
    is_finished_ = false;
    FinishedSquare<W> finished;
    finished.Begin(job_, part_, lines_, finished_t_, finished_pair_, waiting_.sums);
    finished.AllRows(job_, tiles_);
  }

  const LinearJob& job_;
  const PackedTiles& tiles_;
  LinesOut lines_;
  char* ring_;
  char* weights_;  // expanded weights
  float* sums_;
  int64_t block_bytes_, group_tiles_, groups_ = 0;
  const char* packed_ = nullptr;  // weights of the K block
  TilePart part_ = {};
  GroupFold waiting_ = {};
  int64_t turn_ = 0;
  bool is_finished_ = false;
  int64_t finished_t_ = 0, finished_pair_ = 0;
};

}  // namespace
}  // namespace baton
