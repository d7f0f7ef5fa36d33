// The linear layer on vector registers, for any instruction that adds products to fp32 lanes, in
// the tile order of numerics v1 (gemm_order.h).
//
// The policy V names the instruction. A 32-k group is kSteps steps of kPasses passes: in a step
// each row has a broadcast word of 32 bits for each chain of the pass, and each vector has the
// words of its outputs:
//   V::Vec, V::kLanes           vector of fp32 accumulators: 16 or 8
//   V::kRegisters               vectors that the machine's registers hold: 32 or 16
//   V::kPasses                  2: a vector holds the chains e, then o of its outputs; 1: both
//   V::kSteps                   16 with fp32 words (one k each), 8 with pairs of bf16 (two k each)
//   V::Dot(acc, a, b)           acc + the products of a step
//   V::PackGroup(x, first, second)   the words of one row and group, of each pass, from 32 k of x
//   V::Weights(block, step, v, pass)   the words of vector v of a block, from packed weights
//   V::kDirectRows              largest number of rows for the direct way
//   V::kDirectTileRows          largest single direct tile, in rows
//   V::kDirectTilesRows         largest of several direct tiles, in rows
//   V::DirectVecs(rows)         vectors of a direct tile: that many blocks are parallel streams
//                               from memory
//   V::DirectBlocks(k)          largest direct work item, in 16-output blocks
//   V::LongStreams(k)           one row: streams of an item, each of which goes on through adjacent
//                               blocks; 0: a stream ends with its block
//   V::kPrefetchRows            from this many rows on, computing takes as long as waiting for
//                               memory: the next K block is prefetched meanwhile, which slows
//                               fewer rows down
//   V::kTileRows, kTileVecs     largest tile for more rows
//   V::kBlockGroups             groups of a K block: a panel's words fit in L1
//   V::PrefetchBytes(streams)   how far ahead streamed weights are prefetched; 0: not at all
// and if kPasses is 1
//   V::Product(a, b)            the products of a step
//   V::AddChains(lower, upper)  e + o of the outputs of two vectors
//   V::VecsAtOnce(rows)         vectors of a direct tile, so that sums fit in registers
//
// Some rows ("direct"): words are made on the fly, weights are streamed from memory once: by the
// one tile that holds all rows, or a K block at a time, which later tiles find in L1.
//
// Many rows ("panels"): the words of a panel of weights are laid out in L1 once per K block and
// used by all rows; accumulators of a tile wait in scratch between K blocks, which changes no bit.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_epilogue.h"
#include "engine/cpu/linear/gemm_items.h"
#include "engine/cpu/linear/gemm_order.h"
#include "engine/cpu/linear/gemm_sums.h"
#include "engine/cpu/linear/input_row.h"
#include "engine/cpu/linear/linear_job.h"
#include "engine/cpu/linear/weight_prefetch.h"

namespace baton {
namespace {

template <class V, class Order = TileOrder>
class VectorGemm {
 public:
  static constexpr int64_t kMaxRows = 516 / V::kTileRows * V::kTileRows;
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int kBlockVecs = kVecsPerBlock<V>;
  static constexpr int64_t kPanelBlocks = V::kTileVecs / kBlockVecs;
  static constexpr int64_t kPanelsPerItem = kMinItemBlocks / kPanelBlocks;
  static constexpr int64_t kBlockGroups = V::kBlockGroups;  // groups of a K block
  static constexpr int64_t kPassWords = V::kSteps * V::kTileVecs * V::kLanes;
  static constexpr int64_t kGroupWords = V::kPasses * kPassWords;  // words of a panel
  static constexpr int64_t kPanelWords = kBlockGroups * kGroupWords;

  static bool Direct(const LinearJob& job) { return job.rows <= V::kDirectRows; }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / 32; }
  static const bf16* Block(const LinearJob& job, int64_t block) {
    return static_cast<const bf16*>(job.weights) + block * 16 * job.k_padded;
  }

  using Tiling = RowTiles<V>;

  static int64_t WordsPerRow(const LinearJob& job) { return Groups(job) * V::kSteps * 2; }
  static int64_t PackedRowsBytes(const LinearJob& job) { return job.rows * WordsPerRow(job) * 4; }
  static int64_t PackItems(const LinearJob& job) { return Tiling(job).PackItems(); }

  // Groups of the K block that begins with `group`.
  static int64_t GroupsFrom(const LinearJob& job, int64_t group) {
    const int64_t left = Groups(job) - group;
    return left < kBlockGroups ? left : kBlockGroups;
  }
  // Words of the tile that begins with `row`, from `group` on, the first group of a K block:
  // [K block][tile][group][pass][row][step], so that a panel meets them in this order.
  static uint32_t* TileWords(const LinearJob& job, int64_t row, int64_t group) {
    const int64_t row_groups = group * job.rows + GroupsFrom(job, group) * row;
    return static_cast<uint32_t*>(job.packed_rows) + row_groups * V::kSteps * 2;
  }

  static void Pack(const LinearJob& job, int64_t item, bf16* room) {
    const auto at = Tiling(job).RowsOfItem(item);
    const int64_t rows = at.tile_end - at.tile_first;
    for (int64_t row = at.first; row < at.end; ++row) {
      const bf16* const x = InputRow(job, row, room);
      const int64_t row_words = (row - at.tile_first) * V::kSteps * (2 / V::kPasses);
      for (int64_t first = 0; first < Groups(job); first += kBlockGroups) {
        uint32_t* words = TileWords(job, at.tile_first, first) + row_words;
        for (int64_t g = 0; g < GroupsFrom(job, first); ++g, words += 2 * rows * V::kSteps) {
          V::PackGroup(x + (first + g) * 32, words, words + rows * V::kSteps);
        }
      }
    }
  }

  static int64_t ItemBlocks(const LinearJob& job) {
    if (!Direct(job)) return kMinItemBlocks;
    return baton::ItemBlocks(job, V::DirectVecs(static_cast<int>(Tiling(job).rows)) / kBlockVecs,
                             V::DirectBlocks(job.k));
  }
  static int64_t ItemOutputs(const LinearJob& job) { return ItemBlocks(job) * 16; }
  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  // First block of the item that the member of the item from `first` on most likely claims next.
  static int64_t NextItem(const LinearJob& job, int64_t first) {
    return first + job.item_step * ItemBlocks(job);
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    const int64_t acc = job.rows * ItemOutputs(job);
    return (Direct(job) ? acc : kPanelWords + acc) * 4;
  }
  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const int64_t first = item * ItemBlocks(job);
    const int64_t left = job.n_blocks - first;
    const int64_t blocks = left < ItemBlocks(job) ? left : ItemBlocks(job);
    if (Direct(job)) {
      RunDirect(job, first, blocks, static_cast<float*>(scratch));
    } else {
      RunPanels(job, first, blocks, scratch);
    }
  }

  // ---- few rows ----

  // One part of K and of an item's blocks, which all tiles of rows compute before the next groups.
  struct DirectPart {
    int64_t first, blocks;  // blocks of the item
    int64_t group, groups;
  };

  // acc [row][output of the item] += the part's groups of blocks from `block` on, for `tiles` tiles
  // from `row` on.
  template <int kRows, int kVecs>
  static void DirectTiles(const LinearJob& job, int64_t row, int64_t tiles, int64_t block,
                          const DirectPart& at, WeightPrefetch* ahead, float* acc) {
    const int64_t block_stride = 16 * job.k_padded;
    // Behind a whole block of K the next tile's blocks are read.
    constexpr int64_t kBlocks = kVecs / kBlockVecs;
    const int64_t next =
        block + kBlocks < at.first + at.blocks ? block + kBlocks : NextItem(job, at.first);
    const bool is_whole = at.groups == Groups(job) && next < job.n_blocks;
    const DirectWeights<V, kVecs> weights{Block(job, block) + at.group * 512, block_stride, ahead,
                                          at.groups,
                                          is_whole ? (next - block - 1) * block_stride : 0};
    for (const int64_t end = row + tiles * kRows; row < end; row += kRows) {
      Order::template AddTile<V, kRows, kVecs>(
          TileWords(job, row, at.group), weights, at.groups,
          {acc + row * ItemOutputs(job), ItemOutputs(job), at.group == 0});
    }
  }

  // Prefetches the next reads: groups of the next blocks, then of the item's or the next item's
  // first ones.
  static WeightPrefetch PrefetchNext(const LinearJob& job, const Tiling& tiling,
                                     const DirectPart& at, int64_t block, int64_t blocks) {
    if (job.rows < V::kPrefetchRows) return {};
    const bool ends = block + blocks >= at.first + at.blocks;
    return WeightPrefetch::OfGroups(job, ends ? at.first : block + blocks, NextItem(job, at.first),
                                    blocks, at.group + (ends ? at.groups : 0), at.groups,
                                    tiling.count * at.groups);
  }

  // Tiles of kVecs vectors while enough blocks are left, then tiles of half as many.
  template <int kRows, int kVecs>
  static void DirectBlocks(const LinearJob& job, const Tiling& tiling, const DirectPart& at,
                           int64_t block, int64_t blocks, float* acc) {
    constexpr int64_t kBlocks = kVecs / kBlockVecs;
    for (; blocks >= kBlocks; block += kBlocks, blocks -= kBlocks, acc += kBlocks * 16) {
      WeightPrefetch ahead = PrefetchNext(job, tiling, at, block, kBlocks);
      DirectTiles<kRows, kVecs>(job, 0, tiling.large, block, at, &ahead, acc);
      if constexpr (kRows > 1) {
        DirectTiles<kRows - 1, kVecs>(job, tiling.large * kRows, tiling.count - tiling.large, block,
                                      at, &ahead, acc);
      }
    }
    if constexpr (kBlocks > 1) {
      DirectBlocks<kRows, kVecs / 2>(job, tiling, at, block, blocks, acc);
    }
  }

  // Calls DirectBlocks for the size of the job's tiles, at most kRows.
  template <int kRows>
  static void DirectRows(const LinearJob& job, const Tiling& tiling, int64_t first, int64_t blocks,
                         float* acc) {
    if (tiling.rows == kRows) {
      // One tile that waits for memory takes all of K at once (K blocks of its words are adjacent).
      const bool is_whole = tiling.count == 1 && job.rows < V::kPrefetchRows;
      const int64_t at_once = is_whole ? Groups(job) : kBlockGroups;
      for (int64_t group = 0; group < Groups(job); group += at_once) {
        const int64_t left = Groups(job) - group;
        const DirectPart at = {first, blocks, group, left < at_once ? left : at_once};
        DirectBlocks<kRows, V::DirectVecs(kRows)>(job, tiling, at, first, blocks, acc);
      }
      return;
    }
    if constexpr (kRows > 1) DirectRows<kRows - 1>(job, tiling, first, blocks, acc);
  }

  // One row whose streams go on through adjacent blocks: a tile takes a block of each stream. False
  // if the blocks are not as many for each stream.
  //
  //   item of 16 blocks, 4 streams    tile 0: blocks 0 4 8 12    tile 1: 1 5 9 13    ..
  template <int kVecs>
  static bool RunLongStreams(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    constexpr int64_t kStreams = kVecs / kBlockVecs;
    if constexpr (kVecs / 2 >= kBlockVecs) {
      if (kStreams > V::LongStreams(job.k))
        return RunLongStreams<kVecs / 2>(job, first, blocks, acc);
    }
    const int64_t along = blocks / kStreams, stride = 16 * job.k_padded;
    if (along * kStreams != blocks) return false;
    WeightPrefetch none;
    for (int64_t i = 0; i < along; ++i) {
      const int64_t next = i + 1 < along ? first + i + 1 : NextItem(job, first);
      const bool goes_on = next + blocks <= job.n_blocks;
      const DirectWeights<V, kVecs> weights{Block(job, first + i), along * stride, &none,
                                            Groups(job),
                                            goes_on ? (next - first - i - 1) * stride : 0};
      alignas(64) float sums[kStreams * 16];
      Order::template AddTile<V, 1, kVecs>(TileWords(job, 0, 0), weights, Groups(job),
                                           {sums, kStreams * 16, true});
      for (int64_t stream = 0; stream < kStreams; ++stream)
        __builtin_memcpy(acc + (stream * along + i) * 16, sums + stream * 16, 16 * sizeof(float));
    }
    return true;
  }

  static void RunDirect(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    const int64_t outputs = ItemOutputs(job);
    const bool is_done = V::LongStreams(job.k) > 0 && job.rows == 1 &&
                         RunLongStreams<V::DirectVecs(1)>(job, first, blocks, acc);
    if (!is_done) DirectRows<V::kDirectTileRows>(job, Tiling(job), first, blocks, acc);
    for (int64_t row = 0; row < job.rows; ++row) {
      FinishRow(job, row, first, blocks, acc + row * outputs, 16);
    }
  }

  // ---- many rows ----

  // Lays out the words of `groups` groups from `group` on, for the existing blocks of a panel.
  static void LayOutPanel(const LinearJob& job, int64_t block, int64_t blocks, int64_t group,
                          int64_t groups, uint32_t* words) {
    for (int64_t b = 0; b < blocks; ++b) {
      const bf16* from = Block(job, block + b) + group * 512;
      for (int64_t g = 0; g < groups; ++g, from += 512) {
        uint32_t* const to = words + g * kGroupWords + b * kBlockVecs * V::kLanes;
#pragma GCC unroll 4
        for (int step = 0; step < V::kSteps; ++step) {
          for (int v = 0; v < kBlockVecs; ++v) {
            for (int pass = 0; pass < V::kPasses; ++pass) {
              V::StoreWords(to + pass * kPassWords + (step * V::kTileVecs + v) * V::kLanes,
                            V::Weights(from, step, v, pass));
            }
          }
        }
      }
    }
  }

  static constexpr int64_t kTileOutputs = kPanelBlocks * 16;

  // One K block of a panel, with the data that all tiles of rows share.
  struct PanelBlock {
    int64_t group;  // first group of the K block
    const uint32_t* words;
    WeightPrefetch* ahead;
    float* acc;             // sums of the panel: [row][vec][lane]
    const float* item_acc;  // sums of the item, when it ends here; else null
    int64_t first, blocks;  // blocks of the item
  };

  template <int kRows>
  static void PanelTiles(const LinearJob& job, const PanelBlock& at, int64_t row, int64_t tiles) {
    const int64_t groups = GroupsFrom(job, at.group);
    const uint32_t* a = TileWords(job, row, at.group);
    float* acc = at.acc + row * kTileOutputs;
    for (const int64_t end = row + tiles * kRows; row < end; row += kRows) {
      if (at.item_acc != nullptr) {
        PrefetchOutputs(job, row, kRows, at.first, at.blocks);
      }
      Order::template AddTile<V, kRows, V::kTileVecs>(
          a, PanelWeights<V, V::kTileVecs>{at.words, at.ahead}, groups,
          {acc, kTileOutputs, at.group == 0});
      if (at.item_acc != nullptr) FinishTile<kRows>(job, row, at);
      a += groups * 2 * V::kSteps * kRows;
      acc += kRows * kTileOutputs;
    }
  }
  template <int kRows>
  static void AddPanel(const LinearJob& job, const Tiling& tiling, const PanelBlock& at) {
    const int64_t large = tiling.large;
    PanelTiles<kRows>(job, at, 0, large);
    if constexpr (kRows > 1) PanelTiles<kRows - 1>(job, at, large * kRows, tiling.count - large);
  }
  // Calls AddPanel for the size of the job's tiles: at most kRows, more than half of the largest.
  template <int kRows>
  static void AddPanelRows(const LinearJob& job, const Tiling& tiling, const PanelBlock& at) {
    if (tiling.rows == kRows) return AddPanel<kRows>(job, tiling, at);
    if constexpr (2 * kRows > V::kTileRows + 2) AddPanelRows<kRows - 1>(job, tiling, at);
  }

  static void RunPanels(const LinearJob& job, int64_t first, int64_t blocks, void* scratch) {
    uint32_t* const words = static_cast<uint32_t*>(scratch);
    float* const acc = static_cast<float*>(scratch) + kPanelWords;
    const int64_t panel_acc = job.rows * kTileOutputs;
    const Tiling tiling(job);
    // A panel that lacks a block computes with stale `words` there; the results are not used.
    for (int64_t i = 0; i < kPanelWords; ++i) words[i] = 0;
    for (int64_t group = 0; group < Groups(job); group += kBlockGroups) {
      const bool is_last = group + kBlockGroups >= Groups(job);
      for (int64_t block = 0; block < blocks; block += kPanelBlocks) {
        const int64_t present = blocks - block < kPanelBlocks ? blocks - block : kPanelBlocks;
        LayOutPanel(job, first + block, present, group, GroupsFrom(job, group), words);
        WeightPrefetch ahead = WeightPrefetch::OfGroups(
            job, first + block, NextItem(job, first) + block, present, group + kBlockGroups,
            kBlockGroups, tiling.count * GroupsFrom(job, group) * V::kPasses);
        AddPanelRows<V::kTileRows>(
            job, tiling,
            {group, words, &ahead, acc + block / kPanelBlocks * panel_acc,
             is_last && block + present == blocks ? acc : nullptr, first, blocks});
      }
    }
  }

  // Finishes the rows of a tile, all blocks of the item, while the last panel's sums are still in
  // L1.
  template <int kRows>
  static void FinishTile(const LinearJob& job, int64_t row, const PanelBlock& at) {
    // An item is one panel, or its panels have a block each.
    static_assert(kPanelsPerItem == 1 || kPanelBlocks == 1);
    const int64_t next_block = kPanelBlocks > 1 ? 16 : job.rows * kTileOutputs;
    for (const int64_t end = row + kRows; row < end; ++row) {
      FinishRow(job, row, at.first, at.blocks, at.item_acc + row * kTileOutputs, next_block);
    }
  }
};

}  // namespace
}  // namespace baton
