// The linear layer on integer weights and vector registers: exact int32 sums per group of k, so
// their order is free, then in ascending order of groups
//
//   int8   y = fp32(sum) * (row scale * output scale)                         one group of all k
//   int4   acc = fma(fp32(sum), output's scale of the group, acc);  y = acc * row scale
//
// Stored weights are unsigned (zero point 128 or 8), activations signed, and
// sum = sum of stored * x - zero point * sum of x, from where every sum starts.
//
// The policy V names the instructions on int32 lanes:
//   V::Vec, V::kLanes           16 or 8 outputs
//   V::kWords                   32-bit words per row and k quad: 1 (four bytes) or 2 (two shorts)
//   V::Dot(acc, weights, x)     acc + the products of one word
//   V::kStepInShorts            Dot adds pairs of products to pairs of shorts, which hold those
//                               of a step (32 k); V::Widen(shorts) is what a pair comes to
//   V::Word(quads, word)        the weights of a word, from the bytes of a k quad
//   V::PackStep(values, words)  32 k of a row as [word][8 quads]
//   V::LowHalves(x), V::HighHalves(x)   of every byte, as bytes
//   V::FoldGroup(sum, scales, before, after), V::ScaleRow<is grouped>(acc, scales, row scale)
//                               see above
//   V::kSums                    sums that fit in registers beside operands
//   V::DirectTileBlocks(rows)   blocks of a direct tile, whose sums do
//   V::kDirectRows, V::kDirectTileRows, V::kDirectTilesRows, V::kDirectBlocks, V::kTileRows,
//   V::kTileBlocks              as in gemm_vector.h
//   V::kPrefetchBytes           how far ahead a streamed block is prefetched at most
// and W how weights are stored: bytes, or halves of bytes (gemm_integer_sums.h).
//
// Few rows ("direct"): weights are read once from memory, several blocks in parallel, each in
// ascending order: parallel streams are faster than one. Many rows
// ("panels"): the words of a few blocks and a K block are laid out in L1 and used by all rows.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/gemm_epilogue.h"
#include "engine/cpu/gemm_integer_sums.h"
#include "engine/cpu/gemm_items.h"
#include "engine/cpu/input_row.h"
#include "engine/cpu/integer_rows.h"
#include "engine/cpu/linear_job.h"
#include "engine/cpu/weight_prefetch.h"

namespace baton {
namespace {

template <class V, class W>
class IntegerGemm {
 public:
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kMaxRows = 86 * V::kTileRows;
  static constexpr int kVecsPerBlock = 16 / V::kLanes;
  static constexpr int64_t kBlockSteps = 8;  // of a K block: 256 k
  static constexpr int kTileVecs = V::kTileBlocks * kVecsPerBlock;
  static constexpr int64_t kTileOutputs = V::kTileBlocks * 16;
  static constexpr int64_t kQuadWordBytes = V::kWords * kTileOutputs * 4;  // of a panel
  static constexpr int64_t kPanelWordBytes = kBlockSteps * kStepQuads * kQuadWordBytes;
  static constexpr int64_t kPanelScaleBytes = V::kTileBlocks * kScaleBytes;  // of a group
  static constexpr int64_t kPanelBytes = kPanelWordBytes + kBlockSteps * kPanelScaleBytes;

  static bool Direct(const LinearJob& job) { return job.rows <= V::kDirectRows; }
  static int64_t Steps(const LinearJob& job) { return job.k_padded / kStepK; }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / job.group_k; }
  static int64_t TileRows(const LinearJob& job) {
    if (job.rows <= V::kDirectTileRows) return job.rows;
    const int64_t largest = Direct(job) ? V::kDirectTilesRows : V::kTileRows;
    const int64_t tiles = (job.rows + largest - 1) / largest;
    return (job.rows + tiles - 1) / tiles;
  }
  static int64_t Tiles(const LinearJob& job) {
    return (job.rows + TileRows(job) - 1) / TileRows(job);
  }
  static int64_t AllRows(const LinearJob& job) { return Tiles(job) * TileRows(job); }
  // Steps of the K block that begins with `step`.
  static int64_t StepsFrom(const LinearJob& job, int64_t step) {
    const int64_t left = Steps(job) - step;
    return left < kBlockSteps ? left : kBlockSteps;
  }

  // ---- packed rows: words [K block][tile][step][row][word][8 quads], row scales, starts ----

  static constexpr int64_t kRowStepWords = V::kWords * kStepQuads;
  static int32_t* TileWords(const LinearJob& job, int64_t tile, int64_t step) {
    const int64_t row_steps = (step * Tiles(job) + StepsFrom(job, step) * tile) * TileRows(job);
    return static_cast<int32_t*>(job.packed_rows) + row_steps * kRowStepWords;
  }
  static float* RowScales(const LinearJob& job) {
    return static_cast<float*>(job.packed_rows) + AllRows(job) * Steps(job) * kRowStepWords;
  }
  // [tile][group][row]: the start of each sum.
  static int32_t* Starts(const LinearJob& job, int64_t tile, int64_t group) {
    int32_t* const all = static_cast<int32_t*>(static_cast<void*>(RowScales(job) + AllRows(job)));
    return all + (tile * Groups(job) + group) * TileRows(job);
  }
  static int64_t PackedRowsBytes(const LinearJob& job) {
    return AllRows(job) * (Steps(job) * kRowStepWords + 1 + Groups(job)) * 4;
  }
  static int64_t PackItems(const LinearJob& job) { return Tiles(job); }
  static void Pack(const LinearJob& job, int64_t tile, bf16* room) {
    const int64_t rows = TileRows(job);
    for (int64_t r = 0; r < rows; ++r) PackRow(job, tile, r, rows, room);
  }
  static void PackRow(const LinearJob& job, int64_t tile, int64_t r, int64_t rows, bf16* room) {
    const int64_t row = tile * rows + r, steps = Steps(job), group_steps = job.group_k / kStepK;
    const int64_t k = row < job.rows ? job.k : 0;
    const bf16* const x = k > 0 ? InputRow(job, row, room) : nullptr;
    const RowScale scale = ScaleOfRow(x, k);
    RowScales(job)[row] = scale.scale;
    int32_t* start = Starts(job, tile, 0) + r;
    int32_t* words = nullptr;
    int32_t sum = 0;
    for (int64_t step = 0, left_in_group = group_steps; step < steps; ++step) {
      if (step % kBlockSteps == 0) words = TileWords(job, tile, step) + r * kRowStepWords;
      alignas(64) int8_t values[kStepK];
      QuantizeStep<Lanes>(x, step * kStepK, k, scale, values);
      V::PackStep(values, words);
      words += rows * kRowStepWords;
      sum += SumOfStep(values);
      if (--left_in_group == 0) {
        *start = -W::kZeroPoint * sum;
        start += rows;
        sum = 0;
        left_in_group = group_steps;
      }
    }
  }

  // ---- one item: a few blocks of outputs, all rows ----

  static int64_t ItemBlocks(const LinearJob& job) {
    if (!Direct(job)) return kLeastItemBlocks;
    return baton::ItemBlocks(job, V::DirectTileBlocks(static_cast<int>(TileRows(job))),
                             V::kDirectBlocks);
  }
  static int64_t ItemOutputs(const LinearJob& job) { return ItemBlocks(job) * 16; }
  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    return (Direct(job) ? 0 : kPanelBytes) + AllRows(job) * ItemOutputs(job) * 4;
  }
  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const int64_t first = item * ItemBlocks(job);
    const int64_t left = job.n_blocks - first;
    const int64_t blocks = left < ItemBlocks(job) ? left : ItemBlocks(job);
    if (Direct(job)) {
      RunDirect(job, first, blocks, static_cast<float*>(scratch));
    } else {
      RunPanels(job, first, blocks, static_cast<char*>(scratch));
    }
  }
  static const char* Block(const LinearJob& job, int64_t block) {
    return static_cast<const char*>(job.weights) + block * job.block_bytes;
  }
  // Lines of a block from `step`, the first one of a K block or group, on.
  static const char* Lines(const LinearJob& job, int64_t block, int64_t step) {
    const int64_t group = step * kStepK / job.group_k;
    const int64_t in_group = step - group * job.group_k / kStepK;
    return Block(job, block) + group * job.group_bytes + kScaleBytes +
           in_group * kStepQuads * W::kQuadBytes;
  }
  // Accumulators of a block and row to values before the epilogue, in place.
  static void ScaleBlock(const LinearJob& job, float row_scale, int64_t block, float* acc) {
    for (int v = 0; v < kVecsPerBlock; ++v) {
      const char* scales = Block(job, block) + v * V::kLanes * 4;
      V::template ScaleRow<W::kIsGrouped>(acc + v * V::kLanes, scales, row_scale);
    }
  }

  // Steps of a group that `steps` steps have.
  static int64_t GroupSteps(const LinearJob& job, int64_t steps) {
    return W::kIsGrouped ? job.group_k / kStepK : steps;
  }
  // What a tile meets in steps [step, step + steps): its words, and the starts of its sums.
  struct TileRowsAt {
    const int32_t* words;
    const int32_t* starts;  // [group][row]
    int64_t steps, group_steps;
  };
  // Of tile 0; those of others by NextTile. (Divisions are as slow
  // as a step of a tile, so loops over tiles do without.)
  static TileRowsAt FirstTile(const LinearJob& job, int64_t step, int64_t steps) {
    const int64_t group_steps = GroupSteps(job, steps);
    const int64_t group = W::kIsGrouped ? step / group_steps : 0;
    return {TileWords(job, 0, step), Starts(job, 0, group), steps, group_steps};
  }
  template <int kRows>
  static void NextTile(int64_t groups, TileRowsAt* tile) {
    tile->words += tile->steps * kRows * kRowStepWords;
    tile->starts += groups * kRows;
  }
  // Calls AddGroup for each group, or what there is of it, of a tile's steps. weights_at(s) and
  // scales_at(s) give what belongs to the group that begins s steps after the tile's first step.
  template <int kRows, int kVecs, int kSplit, class WeightsAt, class ScalesAt>
  static inline __attribute__((always_inline)) void AddBlock(const TileRowsAt& tile,
                                                             const WeightsAt& weights_at,
                                                             const ScalesAt& scales_at,
                                                             int64_t scale_stride, TileSums acc) {
    const int32_t* starts = tile.starts;
    for (int64_t s = 0; s < tile.steps; s += tile.group_steps, starts += kRows) {
      AddGroup<V, W, kRows, kVecs, kSplit>(tile.words + s * kRows * kRowStepWords, weights_at(s),
                                           tile.group_steps, starts, scales_at(s), scale_stride,
                                           acc);
      acc.start = false;
    }
  }

  // ---- few rows ----

  // Independent sums per output, so that a chain's latency is hidden where sums are few.
  static constexpr int DirectSplit(int sums) {
    int split = 4;
    while (split > 1 && split * sums > V::kSums) split /= 2;
    return split;
  }

  template <int kRows, int kBlocks>
  static void DirectTile(const LinearJob& job, int64_t block, float* acc) {
    constexpr int kVecs = kBlocks * kVecsPerBlock;
    const int64_t outputs = ItemOutputs(job), tiles = Tiles(job), groups = Groups(job);
    // One tile: all of K at once (K blocks of its words follow each other).
    const int64_t at_once = tiles == 1 ? Steps(job) : kBlockSteps;
    for (int64_t step = 0; step < Steps(job); step += at_once) {
      const int64_t left = Steps(job) - step;
      TileRowsAt at = FirstTile(job, step, left < at_once ? left : at_once);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        AddBlock<kRows, kVecs, DirectSplit(kRows * kVecs)>(
            at,
            [&](int64_t s) {
              return BlockWeights<V, W>{Lines(job, block, step + s), job.block_bytes};
            },
            [&](int64_t s) { return Lines(job, block, step + s) - kScaleBytes; }, job.block_bytes,
            {acc + tile * kRows * outputs, outputs, step == 0});
        NextTile<kRows>(groups, &at);
      }
    }
  }
  // Tiles of kBlocks blocks while there are so many, then of half as many.
  template <int kRows, int kBlocks>
  static void DirectTiles(const LinearJob& job, int64_t block, int64_t blocks, float* acc) {
    for (; blocks >= kBlocks; block += kBlocks, blocks -= kBlocks, acc += kBlocks * 16) {
      DirectTile<kRows, kBlocks>(job, block, acc);
    }
    if constexpr (kBlocks > 1) DirectTiles<kRows, kBlocks / 2>(job, block, blocks, acc);
  }
  // Calls DirectTiles for the size of the job's tiles, at most kRows.
  template <int kRows>
  static void DirectRows(const LinearJob& job, int64_t block, int64_t blocks, float* acc) {
    if (TileRows(job) == kRows) {
      return DirectTiles<kRows, V::DirectTileBlocks(kRows)>(job, block, blocks, acc);
    }
    if constexpr (kRows > 1) DirectRows<kRows - 1>(job, block, blocks, acc);
  }

  static void RunDirect(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    DirectRows<V::kDirectTileRows>(job, first, blocks, acc);
    const int64_t outputs = ItemOutputs(job);
    const float* const row_scales = RowScales(job);
    for (int64_t row = 0; row < job.rows; ++row) {
      float* const row_acc = acc + row * outputs;
      for (int64_t b = 0; b < blocks; ++b) {
        ScaleBlock(job, row_scales[row], first + b, row_acc + b * 16);
      }
      FinishRow(job, row, first, blocks, row_acc, 16);
    }
  }

  // ---- many rows ----

  // Words of a K block of the blocks of a panel that exist, then scales: [group][block][16].
  static void LayOutPanel(const LinearJob& job, int64_t block, int64_t blocks, int64_t step,
                          int64_t steps, char* words) {
    const int64_t at_once = GroupSteps(job, steps);
    for (int64_t b = 0; b < blocks; ++b) {
      char* out = words + b * 64;
      char* scales = words + kPanelWordBytes + b * kScaleBytes;
      for (int64_t s = 0; s < steps; s += at_once, scales += kPanelScaleBytes) {
        const char* lines = Lines(job, block + b, step + s);
        for (int64_t i = 0; W::kIsGrouped && i < kScaleBytes; i += 32) {
          V::Copy32(scales + i, lines - kScaleBytes + i);
        }
#pragma GCC unroll 2
        for (int64_t quad = 0; quad < at_once * kStepQuads; ++quad, out += kQuadWordBytes) {
          for (int half = 0; half < kVecsPerBlock; ++half) {
            const typename V::Vec bytes = W::template Quad<V>(lines, quad, half);
            for (int word = 0; word < V::kWords; ++word) {
              V::Store(out + word * kTileOutputs * 4 + half * 32, V::Word(bytes, word));
            }
          }
        }
      }
    }
  }

  // What all tiles of rows do with one K block of a panel.
  struct PanelBlock {
    int64_t step;  // the K block's first
    const char* words;
    WeightPrefetch* ahead;
    float* acc;             // of the panel: [tile][row][vec][lane]
    float* item_acc;        // of all panels of the item, where this ends it; null elsewhere
    int64_t first, blocks;  // of the item
  };

  template <int kRows>
  static void AddPanel(const LinearJob& job, const PanelBlock& panel) {
    const int64_t tiles = Tiles(job), groups = Groups(job);
    TileRowsAt at = FirstTile(job, panel.step, StepsFrom(job, panel.step));
    TileSums acc{panel.acc, kTileOutputs, panel.step == 0};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const char* scales = panel.words + kPanelWordBytes - kPanelScaleBytes;
      AddBlock<kRows, kTileVecs, 1>(
          at,
          [&](int64_t s) { return WordWeights<V>{panel.words + s * kStepQuads * kQuadWordBytes}; },
          [&](int64_t) { return scales += kPanelScaleBytes; }, kScaleBytes, acc);
      panel.ahead->Step();
      if (panel.item_acc != nullptr) FinishTile<kRows>(job, tile, tiles, panel);
      NextTile<kRows>(groups, &at);
      acc.sums += kRows * kTileOutputs;
    }
  }
  // Calls AddPanel for the size of the job's tiles: at most kRows, more than half of the largest.
  template <int kRows>
  static void AddPanelRows(const LinearJob& job, const PanelBlock& panel) {
    if (TileRows(job) == kRows) return AddPanel<kRows>(job, panel);
    if constexpr (2 * kRows > V::kTileRows + 2) AddPanelRows<kRows - 1>(job, panel);
  }
  // The rows of a tile, all blocks of the item, while the last panel's sums are still in L1.
  template <int kRows>
  static void FinishTile(const LinearJob& job, int64_t tile, int64_t tiles,
                         const PanelBlock& panel) {
    // An item is one panel, or its panels have a block each.
    static_assert(V::kTileBlocks == kLeastItemBlocks || V::kTileBlocks == 1);
    const int64_t next_block = V::kTileBlocks > 1 ? 16 : tiles * kRows * kTileOutputs;
    const float* const row_scales = RowScales(job);
    for (int64_t row = tile * kRows; row < (tile + 1) * kRows && row < job.rows; ++row) {
      float* const acc = panel.item_acc + row * kTileOutputs;
      for (int64_t b = 0; b < panel.blocks; ++b) {
        ScaleBlock(job, row_scales[row], panel.first + b, acc + b * next_block);
      }
      FinishRow(job, row, panel.first, panel.blocks, acc, next_block);
    }
  }

  // Prefetches what the next K block reads of `blocks` blocks from `block` on; during the last one,
  // the first of the item that this member most likely claims next.
  static WeightPrefetch Ahead(const LinearJob& job, int64_t block, int64_t blocks, int64_t step) {
    int64_t next = step + kBlockSteps;
    if (next >= Steps(job)) {
      next = 0;
      block += job.members * ItemBlocks(job);
      if (block >= job.n_blocks) return {};
      if (blocks > job.n_blocks - block) blocks = job.n_blocks - block;
    }
    const char* from = Lines(job, block, next);
    const char* end =
        Lines(job, block, next + StepsFrom(job, next) - 1) + kStepQuads * W::kQuadBytes;
    return {from, end - from, blocks, job.block_bytes, Tiles(job)};
  }

  static void RunPanels(const LinearJob& job, int64_t first, int64_t blocks, char* scratch) {
    char* const words = scratch;
    float* const acc = static_cast<float*>(static_cast<void*>(scratch + kPanelBytes));
    const int64_t panel_acc = AllRows(job) * kTileOutputs;
    for (int64_t step = 0; step < Steps(job); step += kBlockSteps) {
      const bool is_last = step + kBlockSteps >= Steps(job);
      for (int64_t b = 0; b < blocks; b += V::kTileBlocks) {
        const int64_t present = blocks - b < V::kTileBlocks ? blocks - b : V::kTileBlocks;
        // A panel that lacks blocks computes with what lies there; nobody looks at it.
        LayOutPanel(job, first + b, present, step, StepsFrom(job, step), words);
        WeightPrefetch ahead = Ahead(job, first + b, present, step);
        AddPanelRows<V::kTileRows>(
            job, {step, words, &ahead, acc + b / V::kTileBlocks * panel_acc,
                  is_last && b + present == blocks ? acc : nullptr, first, blocks});
      }
    }
  }
};

}  // namespace
}  // namespace baton
