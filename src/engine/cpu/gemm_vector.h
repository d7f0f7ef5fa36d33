// The linear layer on vector registers, for any instruction that adds products to fp32 lanes: the
// tile order of numerics v1 (linear.h) as two chains, e and o, per output.
//
// The policy V names the instruction. A 32-k group is kSteps steps; in a step each chain takes one
// 32-bit word per row, broadcast, and one vector of such words over the outputs:
//   V::Vec, V::kLanes           vector of fp32 accumulators; 16 or 8 outputs
//   V::kSteps                   16 with fp32 words (one k each), 8 with pairs of bf16 (two k each)
//   V::Dot(acc, a, b)           acc + the products of one word
//   V::PackGroup(x, e, o)       the words of one row and group, kSteps per chain, from 32 k of x
//   V::Weights(block, step, half, chain)   the words of a chain, straight from packed weights
//   V::kDirectRows              as many rows go the direct way, in one tile of at most
//   V::kDirectTileRows          rows or several of at most
//   V::kDirectTilesRows         rows, with
//   V::DirectVecs(rows)         vectors: sums fit in registers beside operands
//   V::kDirectBlocks            16-output blocks of a direct work item at most: read in parallel
//   V::kTileRows, kTileVecs     largest register tile for more rows
//   V::kBothSums                tiles of at most so many sums, of both chains together, run both at
//                               once; 0: none
//   V::kBlockGroups             groups of a K block: a panel's words fit in L1
//   V::kPrefetchBytes           how far ahead streamed weights are prefetched; 0: not at all
//
// Within a group the e chains of a tile run first, wait in L1, then the o chains: one chain per
// output at a time lets the tile be twice as large, so that loads stay well below multiplications.
// Machines that load as often as they multiply do better with small tiles that run both chains at
// once: each vector that is stored takes the time of a multiplication on some (Zen 3).
// Some rows ("direct"): words are made on the fly, weights are streamed from memory once: by the
// one tile that holds all rows, or a K block at a time, which later tiles find in L1.
//
// Many rows ("panels"): the words of a panel of weights are laid out in L1 once per K block and
// used by all rows; accumulators of a tile wait in scratch between K blocks, which changes no bit.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/gemm_epilogue.h"
#include "engine/cpu/gemm_items.h"
#include "engine/cpu/gemm_sums.h"
#include "engine/cpu/input_row.h"
#include "engine/cpu/linear_job.h"
#include "engine/cpu/weight_prefetch.h"

namespace baton {
namespace {

// Weights of a tile's vectors, read from the packed matrix.
template <class V>
struct DirectWeights {
  const bf16* blocks;
  int64_t block_stride;  // bf16s from one block to the next

  template <int kVecs>
  inline __attribute__((always_inline)) typename V::Vec Get(int64_t group, int step, int v,
                                                            int chain) const {
    constexpr int kVecsPerBlock = 16 / V::kLanes;
    const bf16* tile = blocks + (v / kVecsPerBlock) * block_stride + group * 512;
    if (V::kPrefetchBytes > 0 && chain == 0 && v % kVecsPerBlock == 0) {
      const bf16* line = tile + step * (512 / V::kSteps);
      _mm_prefetch(reinterpret_cast<const char*>(line) + V::kPrefetchBytes, _MM_HINT_T0);
    }
    return V::Weights(tile, step, v % kVecsPerBlock, chain);
  }
  void AfterChain() const {}
};

// Weights of a tile's vectors, laid out as words: [group][chain][step][vec][lane].
template <class V>
struct PanelWeights {
  const uint32_t* words;
  WeightPrefetch* ahead;

  template <int kVecs>
  inline __attribute__((always_inline)) typename V::Vec Get(int64_t group, int step, int v,
                                                            int chain) const {
    return V::LoadWords(words + (((group * 2 + chain) * V::kSteps + step) * kVecs + v) * V::kLanes);
  }
  void AfterChain() const { ahead->Step(); }
};

// sums += one chain of one group; a: the words of that chain and group, [row][step].
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void AddChain(const uint32_t* a, const Weights& b,
                                                    int64_t group, int chain,
                                                    typename V::Vec (&sums)[kRows][kVecs]) {
#pragma GCC unroll 2
  for (int step = 0; step < V::kSteps; ++step) {
    typename V::Vec weights[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) weights[v] = b.template Get<kVecs>(group, step, v, chain);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename V::Vec x = V::Broadcast(a + r * V::kSteps + step);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sums[r][v] = V::Dot(sums[r][v], x, weights[v]);
    }
  }
}

// Both chains of one group; a: [chain][row][step]. (All steps unrolled: a loop of two has addresses
// to keep and spills sums.)
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void AddBothChains(const uint32_t* a, const Weights& b,
                                                         int64_t group,
                                                         typename V::Vec (&even)[kRows][kVecs],
                                                         typename V::Vec (&odd)[kRows][kVecs]) {
#pragma GCC unroll 16
  for (int step = 0; step < V::kSteps; ++step) {
#pragma GCC unroll 2
    for (int chain = 0; chain < 2; ++chain) {
      typename V::Vec weights[kVecs];
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) weights[v] = b.template Get<kVecs>(group, step, v, chain);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const typename V::Vec x = V::Broadcast(a + (chain * kRows + r) * V::kSteps + step);
#pragma GCC unroll 16
        for (int v = 0; v < kVecs; ++v) {
          typename V::Vec& sum = chain == 0 ? even[r][v] : odd[r][v];
          sum = V::Dot(sum, x, weights[v]);
        }
      }
    }
  }
}

template <class V, int kRows, int kVecs>
inline __attribute__((always_inline)) void Clear(typename V::Vec (&sums)[kRows][kVecs]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) sums[r][v] = V::Zero();
  }
}

// The order of numerics v1. (The benchmarks put a plain chain in its place, to see what it costs.)
struct TileOrder {
  // acc (kRows rows, kVecs vectors) = or += `groups` groups of rows a ([group][chain][row][step])
  // times weights b.
  template <class V, int kRows, int kVecs, class Weights>
  static void AddTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc);
  template <class V, int kRows, int kVecs, class Weights>
  static void AddSmallTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc);

  template <class V>
  static typename V::Vec Sum(const float* waiting) {
    return V::LoadAcc(waiting);
  }
  template <class V>
  static typename V::Vec Sum(typename V::Vec sum) {
    return sum;
  }
  // acc = or += even + odd, the sums of a group; even: in registers, or waiting in L1.
  template <class V, bool kStart, int kRows, int kVecs, class Even>
  static inline __attribute__((always_inline)) void AddGroup(
      const Even& even, const typename V::Vec (&odd)[kRows][kVecs], TileSums acc) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        float* const out = acc.sums + r * acc.stride + v * V::kLanes;
        const typename V::Vec group_sum = V::Add(Sum<V>(even[r][v]), odd[r][v]);
        V::StoreAcc(out, V::Add(kStart ? V::Zero() : V::LoadAcc(out), group_sum));
      }
    }
  }
};

template <class V, int kRows, int kVecs, class Weights>
void TileOrder::AddSmallTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
  for (int64_t group = 0; group < groups; ++group, a += 2 * V::kSteps * kRows) {
    typename V::Vec even[kRows][kVecs], odd[kRows][kVecs];
    Clear<V, kRows, kVecs>(even);
    Clear<V, kRows, kVecs>(odd);
    AddBothChains<V, kRows, kVecs>(a, b, group, even, odd);
    b.AfterChain();
    b.AfterChain();
    if (acc.start) {
      AddGroup<V, true>(even, odd, acc);
    } else {
      AddGroup<V, false>(even, odd, acc);
    }
    acc.start = false;
  }
}

template <class V, int kRows, int kVecs, class Weights>
void TileOrder::AddTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
  if constexpr (2 * kRows * kVecs <= V::kBothSums) {
    return AddSmallTile<V, kRows, kVecs>(a, b, groups, acc);
  }
  alignas(64) float even[kRows][kVecs][V::kLanes];
  for (int64_t group = 0; group < groups; ++group) {
    typename V::Vec sums[kRows][kVecs];
    Clear<V, kRows, kVecs>(sums);
    AddChain<V, kRows, kVecs>(a, b, group, 0, sums);
    b.AfterChain();
    a += V::kSteps * kRows;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) V::StoreAcc(even[r][v], sums[r][v]);
    }
    // The compiler would keep them in registers that the other chain needs.
    __asm__ volatile("" : : "r"(even) : "memory");
    Clear<V, kRows, kVecs>(sums);
    AddChain<V, kRows, kVecs>(a, b, group, 1, sums);
    b.AfterChain();
    a += V::kSteps * kRows;
    if (acc.start) {
      AddGroup<V, true>(even, sums, acc);
    } else {
      AddGroup<V, false>(even, sums, acc);
    }
    acc.start = false;
  }
}

template <class V, class Order = TileOrder>
class VectorGemm {
 public:
  static constexpr int64_t kMaxRows = 516 / V::kTileRows * V::kTileRows;
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int kVecsPerBlock = 16 / V::kLanes;
  static constexpr int64_t kPanelBlocks = V::kTileVecs / kVecsPerBlock;
  static constexpr int64_t kPanelsPerItem = kLeastItemBlocks / kPanelBlocks;
  static constexpr int64_t kBlockGroups = V::kBlockGroups;  // groups of a K block
  static constexpr int64_t kGroupWords = V::kSteps * 2 * V::kTileVecs * V::kLanes;
  static constexpr int64_t kPanelWords = kBlockGroups * kGroupWords;

  static bool Direct(const LinearJob& job) { return job.rows <= V::kDirectRows; }
  static int64_t Groups(const LinearJob& job) { return job.k_padded / 32; }
  static const bf16* Block(const LinearJob& job, int64_t block) {
    return static_cast<const bf16*>(job.weights) + block * 16 * job.k_padded;
  }

  // Rows are cut into as few tiles as possible, as even as possible, of one size, the last one
  // filled up with zero rows.
  static int64_t TileRows(const LinearJob& job) {
    if (job.rows <= V::kDirectTileRows) return job.rows;
    const int64_t largest = Direct(job) ? V::kDirectTilesRows : V::kTileRows;
    const int64_t tiles = (job.rows + largest - 1) / largest;
    return (job.rows + tiles - 1) / tiles;
  }
  static int64_t Tiles(const LinearJob& job) {
    return (job.rows + TileRows(job) - 1) / TileRows(job);
  }

  static int64_t WordsPerRow(const LinearJob& job) { return Groups(job) * V::kSteps * 2; }
  static int64_t PackedRowsBytes(const LinearJob& job) {
    return Tiles(job) * TileRows(job) * WordsPerRow(job) * 4;
  }
  static int64_t PackItems(const LinearJob& job) { return Tiles(job); }

  // Groups of the K block that begins with `group`.
  static int64_t GroupsFrom(const LinearJob& job, int64_t group) {
    const int64_t left = Groups(job) - group;
    return left < kBlockGroups ? left : kBlockGroups;
  }
  // Words of a tile from `group` on, the first group of a K block: [K block][tile][group][chain]
  // [row][step], so that a panel meets them in this order.
  static uint32_t* TileWords(const LinearJob& job, int64_t tile, int64_t group) {
    const int64_t row_groups = (group * Tiles(job) + GroupsFrom(job, group) * tile) * TileRows(job);
    return static_cast<uint32_t*>(job.packed_rows) + row_groups * V::kSteps * 2;
  }

  static void Pack(const LinearJob& job, int64_t tile, bf16* room) {
    const int64_t rows = TileRows(job);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = tile * rows + r;
      const bf16* const x = row < job.rows ? InputRow(job, row, room) : nullptr;
      for (int64_t first = 0; first < Groups(job); first += kBlockGroups) {
        uint32_t* e = TileWords(job, tile, first) + r * V::kSteps;
        for (int64_t g = 0; g < GroupsFrom(job, first); ++g, e += 2 * rows * V::kSteps) {
          uint32_t* const o = e + rows * V::kSteps;
          if (x != nullptr) {
            V::PackGroup(x + (first + g) * 32, e, o);
          } else {
            for (int64_t i = 0; i < V::kSteps; ++i) e[i] = o[i] = 0;
          }
        }
      }
    }
  }

  static int64_t ItemBlocks(const LinearJob& job) {
    if (!Direct(job)) return kLeastItemBlocks;
    return baton::ItemBlocks(job, V::DirectVecs(static_cast<int>(TileRows(job))) / kVecsPerBlock,
                             V::kDirectBlocks);
  }
  static int64_t ItemOutputs(const LinearJob& job) { return ItemBlocks(job) * 16; }
  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + ItemBlocks(job) - 1) / ItemBlocks(job);
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    const int64_t acc = Tiles(job) * TileRows(job) * ItemOutputs(job);
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

  // acc [tile][row][output of the item] += groups [group, group + groups) of blocks from `block`
  // on.
  template <int kRows, int kVecs>
  static void DirectTiles(const LinearJob& job, int64_t block, int64_t group, int64_t groups,
                          float* acc) {
    const int64_t block_stride = 16 * job.k_padded;
    const DirectWeights<V> weights{Block(job, block) + group * 512, block_stride};
    for (int64_t tile = 0; tile < Tiles(job); ++tile) {
      Order::template AddTile<V, kRows, kVecs>(
          TileWords(job, tile, group), weights, groups,
          {acc + tile * kRows * ItemOutputs(job), ItemOutputs(job), group == 0});
    }
  }

  // Tiles of kVecs vectors while there are blocks for them, then of half as many.
  template <int kRows, int kVecs>
  static void DirectBlocks(const LinearJob& job, int64_t block, int64_t blocks, int64_t group,
                           int64_t groups, float* acc) {
    constexpr int64_t kBlocks = kVecs / kVecsPerBlock;
    for (; blocks >= kBlocks; block += kBlocks, blocks -= kBlocks, acc += kBlocks * 16) {
      DirectTiles<kRows, kVecs>(job, block, group, groups, acc);
    }
    if constexpr (kBlocks > 1) {
      DirectBlocks<kRows, kVecs / 2>(job, block, blocks, group, groups, acc);
    }
  }

  // Calls DirectBlocks for the size of the job's tiles, at most kRows.
  template <int kRows>
  static void DirectRows(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    if (TileRows(job) == kRows) {
      // One tile: all of K at once (K blocks of its words follow each other).
      const int64_t at_once = Tiles(job) == 1 ? Groups(job) : kBlockGroups;
      for (int64_t group = 0; group < Groups(job); group += at_once) {
        const int64_t left = Groups(job) - group;
        DirectBlocks<kRows, V::DirectVecs(kRows)>(job, first, blocks, group,
                                                  left < at_once ? left : at_once, acc);
      }
      return;
    }
    if constexpr (kRows > 1) DirectRows<kRows - 1>(job, first, blocks, acc);
  }

  static void RunDirect(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    const int64_t outputs = ItemOutputs(job);
    DirectRows<V::kDirectTileRows>(job, first, blocks, acc);
    for (int64_t row = 0; row < job.rows; ++row) {
      FinishRow(job, row, first, blocks, acc + row * outputs, 16);
    }
  }

  // ---- many rows ----

  // Words of `groups` groups from `group` on, of the blocks of a panel that exist.
  static void LayOutPanel(const LinearJob& job, int64_t block, int64_t blocks, int64_t group,
                          int64_t groups, uint32_t* words) {
    for (int64_t b = 0; b < blocks; ++b) {
      const bf16* from = Block(job, block + b) + group * 512;
      for (int64_t g = 0; g < groups; ++g, from += 512) {
        uint32_t* e = words + g * kGroupWords + b * 16;
        uint32_t* o = e + kGroupWords / 2;
#pragma GCC unroll 4
        for (int step = 0; step < V::kSteps; ++step) {
          for (int half = 0; half < kVecsPerBlock; ++half) {
            const int64_t at = step * V::kTileVecs * V::kLanes + half * V::kLanes;
            V::StoreWords(e + at, V::Weights(from, step, half, 0));
            V::StoreWords(o + at, V::Weights(from, step, half, 1));
          }
        }
      }
    }
  }

  static constexpr int64_t kTileOutputs = V::kTileVecs * V::kLanes;

  // What all tiles of rows do with one K block of a panel. (Divisions are as slow as a step of a
  // tile, so the numbers of tiles and rows are not asked for in the loop over tiles.)
  struct PanelBlock {
    int64_t group;  // the K block's first
    const uint32_t* words;
    WeightPrefetch* ahead;
    float* acc;             // of the panel: [tile][row][vec][lane]
    const float* item_acc;  // of all panels of the item, where this ends it; null elsewhere
    int64_t first, blocks;  // of the item
  };

  template <int kRows>
  static void AddPanel(const LinearJob& job, const PanelBlock& at) {
    const int64_t tiles = Tiles(job), groups = GroupsFrom(job, at.group);
    const uint32_t* a = TileWords(job, 0, at.group);
    float* acc = at.acc;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      Order::template AddTile<V, kRows, V::kTileVecs>(a, PanelWeights<V>{at.words, at.ahead},
                                                      groups, {acc, kTileOutputs, at.group == 0});
      if (at.item_acc != nullptr) FinishTile<kRows>(job, tile, tiles, at);
      a += groups * 2 * V::kSteps * kRows;
      acc += kRows * kTileOutputs;
    }
  }
  // Calls AddPanel for the size of the job's tiles: at most kRows, more than half of the largest.
  template <int kRows>
  static void AddPanelRows(const LinearJob& job, const PanelBlock& at) {
    if (TileRows(job) == kRows) return AddPanel<kRows>(job, at);
    if constexpr (2 * kRows > V::kTileRows + 2) AddPanelRows<kRows - 1>(job, at);
  }

  static void RunPanels(const LinearJob& job, int64_t first, int64_t blocks, void* scratch) {
    uint32_t* const words = static_cast<uint32_t*>(scratch);
    float* const acc = static_cast<float*>(scratch) + kPanelWords;
    const int64_t panel_acc = Tiles(job) * TileRows(job) * kTileOutputs;
    // A panel that lacks a block computes with what lies in `words` there; nobody looks at it.
    for (int64_t i = 0; i < kPanelWords; ++i) words[i] = 0;
    for (int64_t group = 0; group < Groups(job); group += kBlockGroups) {
      const bool is_last = group + kBlockGroups >= Groups(job);
      for (int64_t block = 0; block < blocks; block += kPanelBlocks) {
        const int64_t present = blocks - block < kPanelBlocks ? blocks - block : kPanelBlocks;
        LayOutPanel(job, first + block, present, group, GroupsFrom(job, group), words);
        WeightPrefetch ahead =
            WeightPrefetch::OfGroups(job, first + block, present, group + kBlockGroups,
                                     kBlockGroups, Tiles(job) * GroupsFrom(job, group) * 2);
        AddPanelRows<V::kTileRows>(
            job, {group, words, &ahead, acc + block / kPanelBlocks * panel_acc,
                  is_last && block + present == blocks ? acc : nullptr, first, blocks});
      }
    }
  }

  // The rows of a tile, all blocks of the item, while the last panel's sums are still in L1.
  template <int kRows>
  static void FinishTile(const LinearJob& job, int64_t tile, int64_t tiles, const PanelBlock& at) {
    // An item is one panel, or its panels have a block each.
    static_assert(kPanelsPerItem == 1 || kPanelBlocks == 1);
    const int64_t next_block = kPanelBlocks > 1 ? 16 : tiles * kRows * kTileOutputs;
    for (int64_t row = tile * kRows; row < (tile + 1) * kRows && row < job.rows; ++row) {
      FinishRow(job, row, at.first, at.blocks, at.item_acc + row * kTileOutputs, next_block);
    }
  }
};

}  // namespace
}  // namespace baton
