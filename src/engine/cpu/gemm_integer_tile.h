// The linear layer on integer weights and AMX tiles (gemm_integer.h says what is computed). Of tile
// registers 0..7 the policy T gives what gemm_tile.h names, and
//   T::DotInt8<c, a, b>()   c (int32) += a (16 rows x 64 k, signed) * b (16 k quads x 16 outputs,
//                           unsigned): exact
//
// Rows are packed as A tiles [row tile][k tile][16][64 bytes]. int8: 1 KiB of packed weights is a B
// tile. int4: halves of bytes become B tiles in scratch, group by group, used by all rows; a group
// of 32 k has a tile of its own whose upper half of A is zero (what B holds there is then
// harmless). Up to 16 rows: one A tile times four blocks of weights; more: 2 x 2 tiles.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/gemm_integer_zmm.h"

namespace baton {
namespace {

template <class T, class W>
class IntegerTileGemm {
 public:
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kMaxRows = 512;
  static constexpr int64_t kTile = 1024;     // bytes of an A or B tile
  static constexpr int64_t kAccTile = 256;   // sums of a C tile
  static constexpr int64_t kBlockTiles = 8;  // of a K block of int8: 512 k
  static constexpr int64_t kFewRowsBlocks = 4, kManyRowsBlocks = 8;
  static constexpr int64_t kStreamAhead = 4096;  // measured best for linear streams

  static bool FewRows(const LinearJob& job) { return job.rows <= 16; }
  static int64_t RowTiles(const LinearJob& job) {
    return FewRows(job) ? 1 : (job.rows + 31) / 32 * 2;  // pairs of tiles
  }
  static int64_t AllRows(const LinearJob& job) { return RowTiles(job) * 16; }
  static int64_t TileK(const LinearJob& job) { return job.group_k < 64 ? job.group_k : 64; }
  static int64_t KTiles(const LinearJob& job) { return job.k_padded / TileK(job); }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / job.group_k; }
  static int64_t GroupTiles(const LinearJob& job) { return job.group_k / TileK(job); }
  static int64_t ItemBlocks(const LinearJob& job) {
    return FewRows(job) ? kFewRowsBlocks : kManyRowsBlocks;
  }

  // ---- packed rows: A tiles, row scales, starts [row][group] ----

  static char* ATile(const LinearJob& job, int64_t row_tile, int64_t k_tile) {
    return static_cast<char*>(job.packed_rows) + (row_tile * KTiles(job) + k_tile) * kTile;
  }
  static float* RowScales(const LinearJob& job) {
    return static_cast<float*>(static_cast<void*>(ATile(job, RowTiles(job), 0)));
  }
  static int32_t* Starts(const LinearJob& job, int64_t row) {
    return static_cast<int32_t*>(static_cast<void*>(RowScales(job) + AllRows(job))) +
           row * Groups(job);
  }
  static int64_t PackedRowsBytes(const LinearJob& job) {
    return RowTiles(job) * KTiles(job) * kTile + AllRows(job) * (1 + Groups(job)) * 4;
  }
  static int64_t PackItems(const LinearJob& job) { return RowTiles(job); }
  static void Pack(const LinearJob& job, int64_t row_tile, bf16* room) {
    for (int64_t r = 0; r < 16; ++r) PackRow(job, row_tile, r, room);
  }
  static void PackRow(const LinearJob& job, int64_t row_tile, int64_t r, bf16* room) {
    const int64_t row = row_tile * 16 + r, k = row < job.rows ? job.k : 0;
    const bf16* const x = k > 0 ? InputRow(job, row, room) : nullptr;
    const RowScale scale = ScaleOfRow(x, k);
    RowScales(job)[row] = scale.scale;
    int32_t sum = 0;
    for (int64_t k_tile = 0; k_tile < KTiles(job); ++k_tile) {
      alignas(64) int8_t values[64] = {};
      for (int64_t i = 0; i < TileK(job); i += kStepK) {
        QuantizeStep<Lanes>(x, k_tile * TileK(job) + i, k, scale, values + i);
        sum += SumOfStep(values + i);
      }
      _mm512_storeu_si512(ATile(job, row_tile, k_tile) + r * 64, _mm512_load_si512(values));
      if ((k_tile + 1) % GroupTiles(job) == 0) {
        Starts(job, row)[k_tile / GroupTiles(job)] = -W::kZeroPoint * sum;
        sum = 0;
      }
    }
  }

  // ---- one item: scratch has accumulators [row tile][block][16][16], then of int4 C tiles of the
  // group at hand and B tiles [block][k tile of the group] ----

  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  static int64_t AccBytes(const LinearJob& job) {
    return RowTiles(job) * ItemBlocks(job) * kAccTile * 4;
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    if (!W::kIsGrouped) return AccBytes(job);
    return AccBytes(job) + 4 * kTile + ItemBlocks(job) * GroupTiles(job) * kTile + kTile;
  }
  static float* AccTile(const LinearJob& job, float* acc, int64_t t, int64_t b) {
    return acc + (t * ItemBlocks(job) + b) * kAccTile;
  }
  static const char* Block(const LinearJob& job, int64_t block) {
    return static_cast<const char*>(job.weights) + block * job.block_bytes;
  }

  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const int64_t first = item * ItemBlocks(job), left = job.n_blocks - first;
    const int64_t blocks = left < ItemBlocks(job) ? left : ItemBlocks(job);
    float* acc = static_cast<float*>(scratch);
    T::Configure();
    if (W::kIsGrouped) {
      RunGroups(job, first, blocks, acc);
    } else if (FewRows(job)) {
      RunFewRows(job, first, blocks, acc);
    } else {
      RunManyRows(job, first, blocks, acc);
    }
    T::Release();
    for (int64_t row = 0; row < job.rows; ++row) {
      float* const row_acc = AccTile(job, acc, row / 16, 0) + row % 16 * 16;
      for (int64_t b = 0; b < blocks; ++b) ScaleBlock(job, row, first + b, row_acc + b * kAccTile);
      FinishRow(job, row, first, blocks, row_acc, kAccTile);
    }
  }
  static void ScaleBlock(const LinearJob& job, int64_t row, int64_t block, float* acc) {
    if (!W::kIsGrouped) {
      const __m512i sum = _mm512_loadu_si512(acc);
      _mm512_storeu_si512(acc, _mm512_add_epi32(sum, _mm512_set1_epi32(*Starts(job, row))));
    }
    ZmmIntegers::ScaleRow<W::kIsGrouped>(acc, Block(job, block), RowScales(job)[row]);
  }

  // ---- int8, up to 16 rows ----

  template <int c, int b>
  static void StreamBlock(const char* tile) {
    for (int64_t line = 0; line < kTile; line += 64) T::Prefetch(tile + kStreamAhead + line);
    T::template Load<b>(tile, 64);
    T::template DotInt8<c, 4, b>();
  }
  static void RunFewRows(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    ZeroAll();
    for (int64_t k = 0; k < KTiles(job); ++k) {
      const char* b = Block(job, first) + kScaleBytes + k * kTile;
      T::template Load<4>(ATile(job, 0, k), 64);
      StreamBlock<0, 5>(b);
      if (blocks > 1) StreamBlock<1, 6>(b + job.block_bytes);
      if (blocks > 2) StreamBlock<2, 7>(b + 2 * job.block_bytes);
      if (blocks > 3) StreamBlock<3, 5>(b + 3 * job.block_bytes);
    }
    T::template Store<0>(AccTile(job, acc, 0, 0), 64);
    T::template Store<1>(AccTile(job, acc, 0, 1), 64);
    T::template Store<2>(AccTile(job, acc, 0, 2), 64);
    T::template Store<3>(AccTile(job, acc, 0, 3), 64);
  }
  static void ZeroAll() {
    T::template Zero<0>();
    T::template Zero<1>();
    T::template Zero<2>();
    T::template Zero<3>();
  }

  // ---- squares: row tiles t and t + 1 times two blocks (one, where `has_second` is false), or one
  // row tile where `has_rows` is false. B tiles of a block follow each other. ----

  struct Square {
    const char* a0;  // A tiles of the first k
    const char* a1;  // null: one row tile
    const char* b0;
    const char* b1;  // null: one block
  };

  static void AddSquare(const Square& at, int64_t k_tiles, WeightPrefetch& ahead) {
    for (int64_t k = 0; k < k_tiles; ++k) {
      T::template Load<4>(at.a0 + k * kTile, 64);
      T::template Load<6>(at.b0 + k * kTile, 64);
      T::template DotInt8<0, 4, 6>();
      if (at.b1 != nullptr) {
        T::template Load<7>(at.b1 + k * kTile, 64);
        T::template DotInt8<1, 4, 7>();
      }
      if (at.a1 != nullptr) {
        T::template Load<5>(at.a1 + k * kTile, 64);
        T::template DotInt8<2, 5, 6>();
        if (at.b1 != nullptr) T::template DotInt8<3, 5, 7>();
      }
      ahead.Step();
    }
  }

  // ---- int8, many rows ----

  static void RunManyRows(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    const int64_t all = KTiles(job), row_tiles = RowTiles(job);
    for (int64_t k = 0; k < all; k += kBlockTiles) {
      const int64_t k_tiles = all - k < kBlockTiles ? all - k : kBlockTiles;
      const int64_t left = all - k - k_tiles;
      const char* const weights = Block(job, first) + kScaleBytes + k * kTile;
      WeightPrefetch ahead(weights + k_tiles * kTile,
                           (left < kBlockTiles ? left : kBlockTiles) * kTile, left > 0 ? blocks : 0,
                           job.block_bytes, row_tiles / 2 * ((blocks + 1) / 2) * k_tiles);
      for (int64_t t = 0; t < row_tiles; t += 2) {
        for (int64_t b = 0; b < blocks; b += 2) {
          const char* const b0 = weights + b * job.block_bytes;
          LoadOrZero(job, acc, t, b, k > 0);
          AddSquare({ATile(job, t, k), ATile(job, t + 1, k), b0,
                     b + 1 < blocks ? b0 + job.block_bytes : nullptr},
                    k_tiles, ahead);
          StoreSquare(job, acc, t, b);
        }
      }
    }
  }
  // kManyRowsBlocks is even: the second block of a pair has a place even where it is missing.
  static void LoadOrZero(const LinearJob& job, float* acc, int64_t t, int64_t b, bool load) {
    if (!load) return ZeroAll();
    T::template Load<0>(AccTile(job, acc, t, b), 64);
    T::template Load<1>(AccTile(job, acc, t, b + 1), 64);
    T::template Load<2>(AccTile(job, acc, t + 1, b), 64);
    T::template Load<3>(AccTile(job, acc, t + 1, b + 1), 64);
  }
  static void StoreSquare(const LinearJob& job, float* acc, int64_t t, int64_t b) {
    T::template Store<0>(AccTile(job, acc, t, b), 64);
    T::template Store<1>(AccTile(job, acc, t, b + 1), 64);
    T::template Store<2>(AccTile(job, acc, t + 1, b), 64);
    T::template Store<3>(AccTile(job, acc, t + 1, b + 1), 64);
  }

  // ---- int4 ----

  // B tiles of one block and group.
  static void Expand(const char* lines, int64_t quads, char* tiles) {
    for (int64_t quad = 0; quad < quads; ++quad) {
      _mm512_storeu_si512(tiles + quad * 64, W::template Quad<ZmmIntegers>(lines, quad, 0));
    }
  }
  static void RunGroups(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    char* const c = static_cast<char*>(static_cast<void*>(acc)) + AccBytes(job);
    char* const b_tiles = c + 4 * kTile;
    const int64_t tiles = GroupTiles(job), block_tiles = tiles * kTile;
    for (int64_t i = 0; i < AccBytes(job) / 4; i += 16) {
      _mm512_storeu_ps(acc + i, _mm512_setzero_ps());
    }
    WeightPrefetch none;
    for (int64_t g = 0; g < Groups(job); ++g) {
      for (int64_t b = 0; b < blocks; ++b) {
        const char* const group = Block(job, first + b) + g * job.group_bytes;
        for (int64_t line = 0; line < job.group_bytes; line += 64) {
          T::Prefetch(group + job.group_bytes + line);
        }
        Expand(group + kScaleBytes, job.group_k / 4, b_tiles + b * block_tiles);
      }
      for (int64_t t = 0; t < RowTiles(job); t += 2) {
        const bool has_rows = t + 1 < RowTiles(job);
        for (int64_t b = 0; b < blocks; b += 2) {
          const bool has_block = b + 1 < blocks;
          const char* const b0 = b_tiles + b * block_tiles;
          ZeroAll();
          AddSquare({ATile(job, t, g * tiles), has_rows ? ATile(job, t + 1, g * tiles) : nullptr,
                     b0, has_block ? b0 + block_tiles : nullptr},
                    tiles, none);
          StoreAndFold<0>(job, first, t, b, g, c, acc);
          if (has_block) StoreAndFold<1>(job, first, t, b + 1, g, c + kTile, acc);
          if (has_rows) StoreAndFold<2>(job, first, t + 1, b, g, c + 2 * kTile, acc);
          if (has_rows && has_block) {
            StoreAndFold<3>(job, first, t + 1, b + 1, g, c + 3 * kTile, acc);
          }
        }
      }
    }
  }
  template <int tile>
  static void StoreAndFold(const LinearJob& job, int64_t first, int64_t t, int64_t b, int64_t g,
                           char* c, float* acc) {
    T::template Store<tile>(c, 64);
    const char* const scales = Block(job, first + b) + g * job.group_bytes;
    float* const out = AccTile(job, acc, t, b);
    // Worked out once: the divisions in Starts and Groups took longer than the products.
    const int64_t groups = Groups(job);
    const int32_t* const starts = Starts(job, t * 16) + g;
    for (int64_t r = 0; r < 16; ++r) {
      const __m512i start = _mm512_set1_epi32(starts[r * groups]);
      ZmmIntegers::FoldGroup(_mm512_add_epi32(_mm512_loadu_si512(c + r * 64), start), scales,
                             out + r * 16, out + r * 16);
    }
  }
};

}  // namespace
}  // namespace baton
