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
//   V::kStepInShorts            Dot adds pairs of products to pairs of shorts, which hold the sums
//                               of a step (32 k): V::Multiply(weights, x) gives the first shorts,
//                               V::Widen(shorts) the sum of a pair
//   V::Word(quads, word)        the weights of a word, from the bytes of a k quad
//   V::PackStep(values, words)  32 k of a row as [word][8 quads]
//   V::LowHalves(x), V::HighHalves(x)   of every byte, as bytes
//   V::FoldGroup(sum, scales, before, after), V::ScaleRow<is grouped>(acc, scales, row scale)
//                               see above
//   V::kSums                    number of sums that fit in registers beside operands
//   V::DirectTileBlocks(rows)   blocks of a direct tile, whose sums fit in registers
//   V::kDirectRows, V::kDirectTileRows, V::kDirectTilesRows, V::kDirectBlocks, V::kTileRows,
//   V::kTileBlocks              as in gemm_vector.h
//   V::kPrefetchRows            rows from which products take as long as memory: lines that the
//                               direct way reads next are prefetched to L2 meanwhile
//   V::kOneStream               int4 only: direct tiles of one block bring a line to L2 for each
//                               line used, and keep folded sums in registers: V::Folded,
//                               LoadFolded, StoreFolded, Fold(sum, scales, before)
//   V::PrefetchBytes(streams)   prefetch distance to L1 of each of so many parallel streams;
//                               0: none
// and the policy W says how weights are stored: bytes, or halves of bytes (gemm_integer_sums.h).
//
// Few rows ("direct"): weights are read once from memory, several blocks in parallel, each in
// ascending order: parallel streams are faster than one. Many rows ("panels"): the words of a few
// blocks and a K block are laid out in L1 and used by all rows.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "engine/cpu/linear/gemm_epilogue.h"
#include "engine/cpu/linear/gemm_integer_sums.h"
#include "engine/cpu/linear/gemm_items.h"
#include "engine/cpu/linear/input_row.h"
#include "engine/cpu/linear/integer_rows.h"
#include "engine/cpu/linear/linear_job.h"
#include "engine/cpu/linear/weight_prefetch.h"

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
  static constexpr int64_t kBlockSteps = 8;  // steps of a K block: 256 k
  static constexpr int kTileVecs = V::kTileBlocks * kVecsPerBlock;
  static constexpr int64_t kTileOutputs = V::kTileBlocks * 16;
  static constexpr int64_t kQuadWordBytes = V::kWords * kTileOutputs * 4;  // bytes of a panel
  static constexpr int64_t kPanelWordBytes = kBlockSteps * kStepQuads * kQuadWordBytes;
  static constexpr int64_t kPanelScaleBytes = V::kTileBlocks * kScaleBytes;  // bytes of a group
  static constexpr int64_t kPanelBytes = kPanelWordBytes + kBlockSteps * kPanelScaleBytes;

  static bool Direct(const LinearJob& job) { return job.rows <= V::kDirectRows; }
  static int64_t Steps(const LinearJob& job) { return job.k_padded / kStepK; }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / job.group_k; }
  using Tiling = RowTiles<V>;
  // Steps of the K block that begins with `step`.
  static int64_t StepsFrom(const LinearJob& job, int64_t step) {
    const int64_t left = Steps(job) - step;
    return left < kBlockSteps ? left : kBlockSteps;
  }

  // ---- packed rows: words [K block][tile][step][row][word][8 quads], row scales, starts ----

  static constexpr int64_t kRowStepWords = V::kWords * kStepQuads;
  static int32_t* Words(const LinearJob& job) { return static_cast<int32_t*>(job.packed_rows); }
  static float* RowScales(const LinearJob& job) {
    return static_cast<float*>(job.packed_rows) + job.rows * Steps(job) * kRowStepWords;
  }
  // [group][row]: the start of each sum.
  static int32_t* Starts(const LinearJob& job) {
    return static_cast<int32_t*>(static_cast<void*>(RowScales(job) + job.rows));
  }
  static int64_t PackedRowsBytes(const LinearJob& job) {
    return job.rows * (Steps(job) * kRowStepWords + 1 + Groups(job)) * 4;
  }
  static int64_t PackItems(const LinearJob& job) { return Tiling(job).PackItems(); }
  static void Pack(const LinearJob& job, int64_t item, bf16* room) {
    const auto rows = Tiling(job).RowsOfItem(item);
    for (int64_t row = rows.first; row < rows.end; ++row) {
      PackRow(job, row, rows.tile_first, rows.tile_end, room);
    }
  }
  // Packs a row of the tile that holds rows [first, end).
  static void PackRow(const LinearJob& job, int64_t row, int64_t first, int64_t end, bf16* room) {
    const int64_t steps = Steps(job), group_steps = job.group_k / kStepK;
    const bf16* const x = InputRow(job, row, room);
    const RowScale scale = ScaleOfRow(x, job.k);
    RowScales(job)[row] = scale.scale;
    int32_t* start = Starts(job) + row;
    int32_t* words = nullptr;
    StepSum sum;
    for (int64_t step = 0, left_in_group = group_steps; step < steps; ++step) {
      if (step % kBlockSteps == 0) {
        const int64_t row_steps = step * job.rows + StepsFrom(job, step) * first + (row - first);
        words = Words(job) + row_steps * kRowStepWords;
      }
      alignas(64) int8_t values[kStepK];
      QuantizeStep<Lanes>(x, step * kStepK, job.k, scale, values);
      V::PackStep(values, words);
      words += (end - first) * kRowStepWords;
      sum.Add(values);
      if (--left_in_group == 0) {
        *start = -W::kZeroPoint * sum.Get(group_steps);
        start += job.rows;
        sum = {};
        left_in_group = group_steps;
      }
    }
  }

  // ---- one item: a few blocks of outputs, all rows ----

  static int64_t ItemBlocks(const LinearJob& job) {
    if (!Direct(job)) return kMinItemBlocks;
    return baton::ItemBlocks(job, V::DirectTileBlocks(static_cast<int>(Tiling(job).rows)),
                             V::kDirectBlocks);
  }
  static int64_t ItemOutputs(const LinearJob& job) { return ItemBlocks(job) * 16; }
  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    return (Direct(job) ? 0 : kPanelBytes) + job.rows * ItemOutputs(job) * 4;
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
  // Prefetches `steps` steps from `step` on of `blocks` blocks from `block` on, as far as they
  // exist; behind the last step, the first ones of as many blocks from `next_block` on.
  static WeightPrefetch PrefetchSteps(const LinearJob& job, int64_t block, int64_t next_block,
                                      int64_t blocks, int64_t step, int64_t steps,
                                      int64_t chances) {
    if (step >= Steps(job)) {
      step = 0;
      block = next_block;
    }
    if (block >= job.n_blocks) return {};
    if (blocks > job.n_blocks - block) blocks = job.n_blocks - block;
    if (steps > Steps(job) - step) steps = Steps(job) - step;
    const char* const from = Lines(job, block, step);
    const char* const end = Lines(job, block, step + steps - 1) + kStepQuads * W::kQuadBytes;
    return {from, end - from, blocks, job.block_bytes, chances};
  }
  // Converts accumulators of a block and row to the values before the epilogue, in place.
  static void ScaleBlock(const LinearJob& job, float row_scale, int64_t block, float* acc) {
    for (int v = 0; v < kVecsPerBlock; ++v) {
      const char* scales = Block(job, block) + v * V::kLanes * 4;
      V::template ScaleRow<W::kIsGrouped>(acc + v * V::kLanes, scales, row_scale);
    }
  }

  // Steps per group, if `steps` is the number of all steps.
  static int64_t GroupSteps(const LinearJob& job, int64_t steps) {
    return W::kIsGrouped ? job.group_k / kStepK : steps;
  }
  // A K block, with the data that all tiles of rows share. Advances by additions, because a
  // division takes as long as a step of a tile.
  struct KBlock {
    const int32_t* words;   // of the first tile
    const int32_t* starts;  // [group][row]
    int64_t step, steps, group_steps, groups;

    KBlock(const LinearJob& job, int64_t max_steps)
        : words(Words(job)),
          starts(Starts(job)),
          step(0),
          steps(max_steps < Steps(job) ? max_steps : Steps(job)),
          group_steps(GroupSteps(job, steps)),
          groups(W::kIsGrouped ? steps / group_steps : 0) {}  // int8: its one group goes on
    void Next(const LinearJob& job) {
      words += steps * job.rows * kRowStepWords;
      starts += groups * job.rows;
      step += steps;
      if (steps > Steps(job) - step) steps = Steps(job) - step;
      if (!W::kIsGrouped) group_steps = steps;
    }
    // Bytes of a block's stored weights in this K block.
    int64_t Bytes(const LinearJob& job) const {
      return W::kIsGrouped ? groups * job.group_bytes : steps * kStepQuads * W::kQuadBytes;
    }
  };
  // Weights of a tile, group after group.
  template <class Weights>
  struct GroupWeights {
    Weights weights;
    int64_t stride;  // to the next group
    const char* scales;
    int64_t scales_stride, block_scales_stride;
  };
  // Calls AddGroup for each group of a K block, or for the part of a group in it; or AddGroups for
  // all of them. `words` and `starts` belong to the tile, `rows` to the whole job.
  template <int kRows, int kVecs, int kSplit, class Weights>
  static inline __attribute__((always_inline)) void AddBlock(const KBlock& block,
                                                             const int32_t* words,
                                                             const int32_t* starts, int64_t rows,
                                                             GroupWeights<Weights> group,
                                                             TileSums acc) {
    constexpr int kMinChains = 4;  // they hide the latency of a product
    if constexpr (V::kOneStream && kVecs == 1 && kRows >= kMinChains) {
      static_assert(W::kIsGrouped && kVecsPerBlock == 1 && 2 * kRows <= V::kSums);
      AddGroups<V, W, kRows, kVecs>(words, group.weights, group.stride, block.steps,
                                    block.group_steps, starts, rows, group.scales,
                                    group.scales_stride, group.block_scales_stride, acc);
      return;
    }
    for (int64_t s = 0; s < block.steps; s += block.group_steps) {
      AddGroup<V, W, kRows, kVecs, kSplit>(words, group.weights, block.group_steps, starts,
                                           group.scales, group.block_scales_stride, acc);
      words += block.group_steps * kRows * kRowStepWords;
      starts += rows;
      group.weights.from += group.stride;
      group.scales += group.scales_stride;
      acc.start = false;
    }
  }
  // Calls fn<rows of the tile>(words, starts, first row) for each tile of a K block.
  template <int kRows, bool kHasSmall, class Fn>
  static inline __attribute__((always_inline)) void ForTiles(const Tiling& tiling,
                                                             const KBlock& block, const Fn& fn) {
    const int32_t* words = block.words;
    int64_t row = 0, tile = 0;
    for (; tile < tiling.large; ++tile, row += kRows) {
      fn.template operator()<kRows>(words, block.starts + row, row);
      words += block.steps * kRows * kRowStepWords;
    }
    if constexpr (kHasSmall) {
      for (; tile < tiling.count; ++tile, row += kRows - 1) {
        fn.template operator()<kRows - 1>(words, block.starts + row, row);
        words += block.steps * (kRows - 1) * kRowStepWords;
      }
    }
  }

  // ---- few rows ----

  // Independent sums per output, so that a chain's latency is hidden where sums are few.
  static constexpr int DirectSplit(int sums) {
    int split = 4;
    while (split > 1 && split * sums > V::kSums) split /= 2;
    return split;
  }

  // Steps of a block that a tile of all rows takes at once while the next as many come to L2: 16
  // KiB, so that memory is read in long runs, and what is used and what is prefetched lie in L2
  // together. (Zen 4, bench kernels, 8 rows, k 8,192: int8 42 GB/s by 16 KiB, 37 by 4 KiB, 40 by
  // whole blocks of 128 KiB.)
  static constexpr int64_t kAheadSteps = 16384 / (kStepQuads * W::kQuadBytes);

  // noinline: in larger functions g++ 12 keeps sums in memory. next_first: the first block of the
  // tile that follows this one.
  template <int kRows, int kBlocks, class Ahead>
  static __attribute__((noinline)) void DirectTile(const LinearJob& job, const Tiling& tiling,
                                                   int64_t first, int64_t next_first, float* acc,
                                                   int64_t outputs) {
    constexpr int kVecs = kBlocks * kVecsPerBlock;
    constexpr bool kIsStream = std::is_same_v<Ahead, StreamAhead>;
    constexpr bool kHasSmall = !kIsStream && kIsOneOfSeveral<V, kRows>;
    const char* lines = Block(job, first) + kScaleBytes;
    // One tile: many K blocks at once (those of its words follow each other).
    const int64_t at_once = tiling.count > 1                 ? kBlockSteps
                            : std::is_same_v<Ahead, NoAhead> ? Steps(job)
                                                             : kAheadSteps;
    for (KBlock block(job, at_once); block.steps > 0; lines += block.Bytes(job), block.Next(job)) {
      WeightPrefetch next;
      Ahead ahead;
      if constexpr (kIsStream) {
        // To the K block that is read next, the first one of next_first after the last.
        const int64_t end = block.step + block.steps;
        if (end < Steps(job)) {
          ahead = {Lines(job, first, end) - lines};
        } else {
          ahead = {next_first < job.n_blocks ? Lines(job, next_first, 0) - lines : 0};
        }
      } else if constexpr (std::is_same_v<Ahead, SharedAhead>) {
        next = PrefetchSteps(job, first, next_first, kBlocks, block.step + block.steps, at_once,
                             tiling.count * block.steps * kStepChances);
        ahead = {&next};
      }
      ForTiles<kRows, kHasSmall>(
          tiling, block, [&]<int kTile>(const int32_t* words, const int32_t* starts, int64_t row) {
            AddBlock<kTile, kVecs, DirectSplit(kTile * kVecs)>(
                block, words, starts, job.rows,
                GroupWeights<BlockWeights<V, W, Ahead>>{{lines, job.block_bytes, ahead},
                                                        job.group_bytes,
                                                        lines - kScaleBytes,
                                                        job.group_bytes,
                                                        job.block_bytes},
                {acc + row * outputs, outputs, block.step == 0});
          });
    }
  }
  // Tiles of kBlocks blocks while enough blocks are left, then tiles of half as many.
  template <int kRows, int kBlocks, class Ahead>
  static void DirectTiles(const LinearJob& job, const Tiling& tiling, int64_t first, int64_t blocks,
                          float* acc, int64_t outputs) {
    for (; blocks >= kBlocks; first += kBlocks, blocks -= kBlocks, acc += kBlocks * 16) {
      // After the last tile most likely comes the item that this member claims next.
      const int64_t others = blocks > kBlocks ? 0 : (job.item_step - 1) * ItemBlocks(job);
      DirectTile<kRows, kBlocks, Ahead>(job, tiling, first, first + kBlocks + others, acc, outputs);
    }
    if constexpr (kBlocks > 1) {
      DirectTiles<kRows, kBlocks / 2, Ahead>(job, tiling, first, blocks, acc, outputs);
    }
  }
  // Calls DirectTiles for the size of the job's tiles, at most kRows.
  template <int kRows>
  static void DirectRows(const LinearJob& job, const Tiling& tiling, int64_t first, int64_t blocks,
                         float* acc, int64_t outputs) {
    if (tiling.rows == kRows) {
      constexpr int kBlocks = V::DirectTileBlocks(kRows);
      if constexpr (kRows < V::kPrefetchRows) {
        return DirectTiles<kRows, kBlocks, NoAhead>(job, tiling, first, blocks, acc, outputs);
      } else {
        if constexpr (kIsOneOfSeveral<V, kRows>) {
          if (tiling.count > 1) {
            return DirectTiles<kRows, kBlocks, SharedAhead>(job, tiling, first, blocks, acc,
                                                            outputs);
          }
        }
        constexpr bool kIsStream = V::kOneStream && kBlocks == 1;
        using Ahead = std::conditional_t<kIsStream, StreamAhead, SharedAhead>;
        return DirectTiles<kRows, kBlocks, Ahead>(job, tiling, first, blocks, acc, outputs);
      }
    }
    if constexpr (kRows > 1) DirectRows<kRows - 1>(job, tiling, first, blocks, acc, outputs);
  }

  static void RunDirect(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    const int64_t outputs = ItemOutputs(job);
    DirectRows<V::kDirectTileRows>(job, Tiling(job), first, blocks, acc, outputs);
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

  // Lays out the words of a K block for the existing blocks of a panel, then scales:
  // [group][block][16].
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

  // One K block of a panel, with the data that all tiles of rows share.
  struct PanelBlock {
    const char* words;
    WeightPrefetch* ahead;
    float* acc;             // sums of the panel: [tile][row][vec][lane]
    float* item_acc;        // sums of the item, when it ends here; else null
    int64_t first, blocks;  // blocks of the item
  };

  template <int kRows>
  static void AddPanel(const LinearJob& job, const Tiling& tiling, const KBlock& block,
                       const PanelBlock& panel) {
    const int64_t group_words = block.group_steps * kStepQuads * kQuadWordBytes;
    ForTiles<kRows, true>(tiling, block,
                          [&]<int kTile>(const int32_t* words, const int32_t* starts, int64_t row) {
                            if (panel.item_acc != nullptr) {
                              PrefetchOutputs(job, row, kTile, panel.first, panel.blocks);
                            }
                            AddBlock<kTile, kTileVecs, 1, WordWeights<V>>(
                                block, words, starts, job.rows,
                                {{panel.words},
                                 group_words,
                                 panel.words + kPanelWordBytes,
                                 kPanelScaleBytes,
                                 kScaleBytes},
                                {panel.acc + row * kTileOutputs, kTileOutputs, block.step == 0});
                            panel.ahead->Step();
                            if (panel.item_acc != nullptr) FinishRows(job, row, kTile, panel);
                          });
  }
  // Calls AddPanel for the size of the job's tiles: at most kRows, more than half of the largest.
  template <int kRows>
  static void AddPanelRows(const LinearJob& job, const Tiling& tiling, const KBlock& block,
                           const PanelBlock& panel) {
    if (tiling.rows == kRows) return AddPanel<kRows>(job, tiling, block, panel);
    if constexpr (2 * kRows > V::kTileRows + 2) AddPanelRows<kRows - 1>(job, tiling, block, panel);
  }
  // Finishes the rows of a tile, all blocks of the item, while the last panel's sums are still in
  // L1.
  static void FinishRows(const LinearJob& job, int64_t first_row, int64_t rows,
                         const PanelBlock& panel) {
    // An item is one panel, or its panels have a block each.
    static_assert(V::kTileBlocks == kMinItemBlocks || V::kTileBlocks == 1);
    const int64_t next_block = V::kTileBlocks > 1 ? 16 : job.rows * kTileOutputs;
    const float* const row_scales = RowScales(job);
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      float* const acc = panel.item_acc + row * kTileOutputs;
      for (int64_t b = 0; b < panel.blocks; ++b) {
        ScaleBlock(job, row_scales[row], panel.first + b, acc + b * next_block);
      }
      FinishRow(job, row, panel.first, panel.blocks, acc, next_block);
    }
  }

  static void RunPanels(const LinearJob& job, int64_t first, int64_t blocks, char* scratch) {
    char* const words = scratch;
    float* const acc = static_cast<float*>(static_cast<void*>(scratch + kPanelBytes));
    const int64_t panel_acc = job.rows * kTileOutputs;
    const Tiling tiling(job);
    for (KBlock block(job, kBlockSteps); block.steps > 0; block.Next(job)) {
      const bool is_last = block.step + block.steps == Steps(job);
      for (int64_t b = 0; b < blocks; b += V::kTileBlocks) {
        const int64_t present = blocks - b < V::kTileBlocks ? blocks - b : V::kTileBlocks;
        // A panel that lacks blocks computes with stale data there; the results are not used.
        LayOutPanel(job, first + b, present, block.step, block.steps, words);
        // The next K block of these blocks, or the item that this member most likely claims next.
        WeightPrefetch ahead =
            PrefetchSteps(job, first + b, first + b + job.item_step * ItemBlocks(job), present,
                          block.step + kBlockSteps, kBlockSteps, tiling.count);
        AddPanelRows<V::kTileRows>(
            job, tiling, block,
            {words, &ahead, acc + b / V::kTileBlocks * panel_acc,
             is_last && b + present == blocks ? acc : nullptr, first, blocks});
      }
    }
  }
};

}  // namespace
}  // namespace baton
