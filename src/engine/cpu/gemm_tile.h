// The linear layer on AMX tiles. Of tile registers 0..7, the policy T gives
//   T::Configure(), T::Release()      16 rows x 64 bytes for all eight; back to the initial state
//   T::Zero<t>(), T::Load<t>(from, stride), T::Store<t>(to, stride)      stride in bytes
//   T::Dot<c, a, b>()                 c += a (16 rows x 32 k) * b (16 k pairs x 16 outputs), which
//                                     is one 32-k group of the tile order exactly (linear.h)
//   T::Prefetch(line)
//
// Rows are packed as A tiles [row tile][group][16][32]; 1 KiB of packed weights is a B tile.
// Up to 16 rows: one A tile times four blocks of weights streamed from memory. More: 2 x 2 tiles, K
// in blocks so that A stays in L1 and an item's weights in L2, while the next ones are prefetched.
// Tiles are configured per work item, so no thread keeps tile state between regions.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/gemm_epilogue.h"
#include "engine/cpu/input_row.h"
#include "engine/cpu/linear_job.h"
#include "engine/cpu/weight_prefetch.h"

namespace baton {
namespace {

template <class T>
class TileGemm {
 public:
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kMaxRows = 512;
  static constexpr int64_t kTile = 512;        // bf16s of an A or B tile
  static constexpr int64_t kAccTile = 256;     // fp32s of a C tile
  static constexpr int64_t kBlockGroups = 16;  // K block: 512 k, so two A row tiles are 32 KiB
  static constexpr int64_t kFewRowsBlocks = 4;
  static constexpr int64_t kManyRowsBlocks = 8;  // B of an item and K block: 128 KiB

  static bool FewRows(const LinearJob& job) { return job.rows <= 16; }
  static int64_t RowTiles(const LinearJob& job) {
    return FewRows(job) ? 1 : (job.rows + 31) / 32 * 2;  // pairs of tiles
  }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / 32; }
  static int64_t ItemBlocks(const LinearJob& job) {
    return FewRows(job) ? kFewRowsBlocks : kManyRowsBlocks;
  }

  static int64_t PackedRowsBytes(const LinearJob& job) {
    return RowTiles(job) * 16 * job.k_padded * 2;
  }
  static int64_t PackItems(const LinearJob& job) { return RowTiles(job); }
  static void Pack(const LinearJob& job, int64_t tile, bf16* room) {
    const int64_t groups = Groups(job);
    __m512i* out = static_cast<__m512i*>(job.packed_rows) + tile * groups * 16;
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t row = tile * 16 + r;
      const bf16* const x = row < job.rows ? InputRow(job, row, room) : nullptr;
      for (int64_t g = 0; g < groups; ++g) {
        out[g * 16 + r] = x != nullptr ? _mm512_loadu_si512(x + g * 32) : _mm512_setzero_si512();
      }
    }
  }

  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    return RowTiles(job) * ItemBlocks(job) * kAccTile * 4;
  }
  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const int64_t first = item * ItemBlocks(job);
    const int64_t left = job.n_blocks - first;
    const int64_t blocks = left < ItemBlocks(job) ? left : ItemBlocks(job);
    float* acc = static_cast<float*>(scratch);
    T::Configure();
    if (FewRows(job)) {
      RunFewRows(job, first, blocks, acc);
    } else {
      RunManyRows(job, first, blocks, acc);
    }
    T::Release();
    for (int64_t row = 0; row < job.rows; ++row) {
      FinishRow(job, row, first, blocks, AccTile(job, acc, row / 16, 0) + row % 16 * 16, kAccTile);
    }
  }

  // C tile of row tile t and block b of the item.
  static float* AccTile(const LinearJob& job, float* acc, int64_t t, int64_t b) {
    return acc + (t * ItemBlocks(job) + b) * kAccTile;
  }
  static const bf16* ATile(const LinearJob& job, int64_t t, int64_t group) {
    return static_cast<const bf16*>(job.packed_rows) + (t * Groups(job) + group) * kTile;
  }
  static const bf16* BTile(const LinearJob& job, int64_t block, int64_t group) {
    return static_cast<const bf16*>(job.weights) + (block * Groups(job) + group) * kTile;
  }

  // ---- up to 16 rows ----

  static constexpr int64_t kStreamAhead = 4 * kTile;  // 4 KiB, measured best for linear streams

  template <int c, int b>
  static void StreamBlock(const bf16* tile) {
    for (int64_t line = 0; line < kTile; line += 32) T::Prefetch(tile + kStreamAhead + line);
    T::template Load<b>(tile, 64);
    T::template Dot<c, 4, b>();
  }

  static void RunFewRows(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    T::template Zero<0>();
    T::template Zero<1>();
    T::template Zero<2>();
    T::template Zero<3>();
    for (int64_t g = 0; g < Groups(job); ++g) {
      T::template Load<4>(ATile(job, 0, g), 64);
      StreamBlock<0, 5>(BTile(job, first, g));
      if (blocks > 1) StreamBlock<1, 6>(BTile(job, first + 1, g));
      if (blocks > 2) StreamBlock<2, 7>(BTile(job, first + 2, g));
      if (blocks > 3) StreamBlock<3, 5>(BTile(job, first + 3, g));
    }
    T::template Store<0>(AccTile(job, acc, 0, 0), 64);
    T::template Store<1>(AccTile(job, acc, 0, 1), 64);
    T::template Store<2>(AccTile(job, acc, 0, 2), 64);
    T::template Store<3>(AccTile(job, acc, 0, 3), 64);
  }

  // ---- many rows ----

  // Two row tiles times two blocks, over the groups of a K block.
  static void AddSquare(const LinearJob& job, int64_t t, int64_t block, int64_t group,
                        int64_t groups, float* c00, float* c01, float* c10, float* c11,
                        WeightPrefetch& prefetch) {
    if (group == 0) {
      T::template Zero<0>();
      T::template Zero<1>();
      T::template Zero<2>();
      T::template Zero<3>();
    } else {
      T::template Load<0>(c00, 64);
      T::template Load<1>(c01, 64);
      T::template Load<2>(c10, 64);
      T::template Load<3>(c11, 64);
    }
    for (int64_t g = group; g < group + groups; ++g) {
      T::template Load<4>(ATile(job, t, g), 64);
      T::template Load<6>(BTile(job, block, g), 64);
      T::template Dot<0, 4, 6>();
      T::template Load<7>(BTile(job, block + 1, g), 64);
      T::template Dot<1, 4, 7>();
      T::template Load<5>(ATile(job, t + 1, g), 64);
      T::template Dot<2, 5, 6>();
      T::template Dot<3, 5, 7>();
      prefetch.Step();
    }
    T::template Store<0>(c00, 64);
    T::template Store<1>(c01, 64);
    T::template Store<2>(c10, 64);
    T::template Store<3>(c11, 64);
  }

  // The same for the last block of an odd number.
  static void AddColumn(const LinearJob& job, int64_t t, int64_t block, int64_t group,
                        int64_t groups, float* c0, float* c1, WeightPrefetch& prefetch) {
    if (group == 0) {
      T::template Zero<0>();
      T::template Zero<2>();
    } else {
      T::template Load<0>(c0, 64);
      T::template Load<2>(c1, 64);
    }
    for (int64_t g = group; g < group + groups; ++g) {
      T::template Load<6>(BTile(job, block, g), 64);
      T::template Load<4>(ATile(job, t, g), 64);
      T::template Dot<0, 4, 6>();
      T::template Load<5>(ATile(job, t + 1, g), 64);
      T::template Dot<2, 5, 6>();
      prefetch.Step();
    }
    T::template Store<0>(c0, 64);
    T::template Store<2>(c1, 64);
  }

  static void RunManyRows(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    const int64_t all_groups = Groups(job), tiles = RowTiles(job);
    for (int64_t group = 0; group < all_groups; group += kBlockGroups) {
      const int64_t left = all_groups - group;
      const int64_t groups = left < kBlockGroups ? left : kBlockGroups;
      const int64_t chances = tiles / 2 * ((blocks + 1) / 2) * groups;
      WeightPrefetch prefetch =
          WeightPrefetch::OfGroups(job, first, blocks, group + kBlockGroups, kBlockGroups, chances);
      for (int64_t t = 0; t < tiles; t += 2) {
        int64_t b = 0;
        for (; b + 2 <= blocks; b += 2) {
          AddSquare(job, t, first + b, group, groups, AccTile(job, acc, t, b),
                    AccTile(job, acc, t, b + 1), AccTile(job, acc, t + 1, b),
                    AccTile(job, acc, t + 1, b + 1), prefetch);
        }
        if (b < blocks) {
          AddColumn(job, t, first + b, group, groups, AccTile(job, acc, t, b),
                    AccTile(job, acc, t + 1, b), prefetch);
        }
      }
    }
  }
};

}  // namespace
}  // namespace baton
