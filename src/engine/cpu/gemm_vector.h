// The linear layer on vector registers, for any instruction that adds products to fp32 lanes: the
// tile order of numerics v1 (linear.h) as two chains, e and o, per output.
//
// The policy V names the instruction. A 32-k group is kSteps steps; in a step each chain takes one
// 32-bit word per row, broadcast, and one vector of such words over the outputs:
//   V::Vec, V::kLanes           vector of fp32 accumulators; 16 or 8 outputs
//   V::kSteps                   16 with fp32 words (one k each), 8 with pairs of bf16 (two k each)
//   V::Dot(acc, a, b)           acc + the products of one word
//   V::PackStep(x, e, o)        the two words of one row and step, from x in logical order
//   V::Weights(block, step, half, chain)   the words of a chain, straight from packed weights
//   V::kAccumulators            sums that fit in registers beside operands
//   V::kTileRows, kTileVecs     register tile for many rows
//   V::kPrefetchBytes           how far ahead streamed weights are prefetched; 0: not at all
//
// Within a group the e chains of a tile run first, wait in L1, then the o chains: one chain per
// output at a time lets the tile be twice as large, so that loads stay well below multiplications.
// Few rows ("direct"): weights are streamed from memory once, words are made on the fly, register
// tiles are rows x vectors with all rows of the batch where they fit.
// Many rows ("panels"): the words of a panel of weights are laid out in L1 once per K block and
// used by all rows; accumulators of a tile wait in scratch between K blocks, which changes no bit.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/gemm_epilogue.h"
#include "engine/cpu/linear_job.h"

namespace baton {
namespace {

constexpr int64_t kItemBlocks = 4;  // 16-output blocks of one work item
constexpr int64_t kItemOutputs = kItemBlocks * 16;

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
};

// Weights of a tile's vectors, laid out as words: [group][chain][step][vec][lane].
template <class V>
struct PanelWeights {
  const uint32_t* words;

  template <int kVecs>
  inline __attribute__((always_inline)) typename V::Vec Get(int64_t group, int step, int v,
                                                            int chain) const {
    return V::LoadWords(words + (((group * 2 + chain) * V::kSteps + step) * kVecs + v) * V::kLanes);
  }
};

// sums = one chain of one group, from +0; a: the words of that chain and group, [step][row].
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void RunChain(const uint32_t* a, const Weights& b,
                                                    int64_t group, int chain,
                                                    typename V::Vec (&sums)[kRows][kVecs]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = V::Zero();
  }
#pragma GCC unroll 2
  for (int step = 0; step < V::kSteps; ++step) {
    typename V::Vec weights[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) weights[v] = b.template Get<kVecs>(group, step, v, chain);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename V::Vec x = V::Broadcast(a + step * kRows + r);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = V::Dot(sums[r][v], x, weights[v]);
    }
  }
}

// acc (kRows rows, kVecs vectors) += `groups` groups of rows a ([group][chain][step][row]) times
// weights b.
template <class V, int kRows, int kVecs, class Weights>
void AddTile(const uint32_t* a, Weights b, int64_t groups, float* acc, int64_t acc_stride) {
  alignas(64) float even[kRows][kVecs][V::kLanes];
  for (int64_t group = 0; group < groups; ++group) {
    typename V::Vec sums[kRows][kVecs];
    RunChain<V, kRows, kVecs>(a, b, group, 0, sums);
    a += V::kSteps * kRows;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) V::StoreAcc(even[r][v], sums[r][v]);
    }
    RunChain<V, kRows, kVecs>(a, b, group, 1, sums);
    a += V::kSteps * kRows;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        float* out = acc + r * acc_stride + v * V::kLanes;
        const typename V::Vec group_sum = V::Add(V::LoadAcc(even[r][v]), sums[r][v]);
        V::StoreAcc(out, V::Add(V::LoadAcc(out), group_sum));
      }
    }
  }
}

template <class V>
class VectorGemm {
 public:
  static constexpr int64_t kMaxRows = 86 * V::kTileRows;
  static constexpr LinearKernelTable Table() {
    return {kMaxRows, PackedRowsBytes, PackItems, Pack, ScratchBytes, RunItems, Run};
  }

 private:
  static constexpr int64_t kVecsPerBlock = 16 / V::kLanes;
  static constexpr int64_t kPanelBlocks = V::kTileVecs / kVecsPerBlock;
  static constexpr int64_t kPanelsPerItem = kItemBlocks / kPanelBlocks;
  static constexpr int64_t kPanelGroups = V::kPanelGroups;  // groups of a K block
  static constexpr int64_t kGroupWords = V::kSteps * 2 * V::kTileVecs * V::kLanes;
  static constexpr int64_t kPanelWords = kPanelGroups * kGroupWords;
  static constexpr int64_t kTileAcc = V::kTileRows * V::kTileVecs * V::kLanes;

  static bool Direct(const LinearJob& job) { return job.rows <= V::kMaxDirectRows; }

  // Rows are cut into tiles. Direct: as few as possible and as even as possible. Panels: kTileRows
  // each, the last one filled up with zero rows.
  static int64_t Tiles(const LinearJob& job) {
    const int64_t tile = Direct(job) ? V::kDirectTileRows : V::kTileRows;
    return (job.rows + tile - 1) / tile;
  }
  static int64_t TileBegin(const LinearJob& job, int64_t tile) {
    if (!Direct(job)) return tile * V::kTileRows;
    return job.rows * tile / Tiles(job);
  }

  static int64_t WordsPerRow(const LinearJob& job) { return job.k_padded / 32 * V::kSteps * 2; }
  // Words of a tile from `group` on, the first group of a K block. [K block][tile][group][chain]
  // [step][row]: what a panel meets one after the other lies one after the other.
  static uint32_t* TileWords(const LinearJob& job, int64_t tile, int64_t group) {
    const int64_t all_groups = job.k_padded / 32;
    const int64_t left = all_groups - group;
    const int64_t groups = Direct(job) ? all_groups : left < kPanelGroups ? left : kPanelGroups;
    const int64_t rows = Direct(job) ? job.rows : Tiles(job) * V::kTileRows;
    return static_cast<uint32_t*>(job.packed_rows) +
           (group * rows + groups * TileBegin(job, tile)) * V::kSteps * 2;
  }

  static int64_t PackedRowsBytes(const LinearJob& job) {
    return (job.rows + V::kTileRows) * WordsPerRow(job) * 4;
  }
  static int64_t PackItems(const LinearJob& job) { return Tiles(job); }

  static void Pack(const LinearJob& job, int64_t tile) {
    const int64_t begin = TileBegin(job, tile);
    const int64_t rows = TileBegin(job, tile + 1) - begin;
    const int64_t all_groups = job.k_padded / 32;
    const int64_t block_groups = Direct(job) ? all_groups : kPanelGroups;
    constexpr int64_t kPerStep = 32 / V::kSteps;
    for (int64_t first = 0; first < all_groups; first += block_groups) {
      const int64_t end = all_groups < first + block_groups ? all_groups : first + block_groups;
      for (int64_t r = 0; r < rows; ++r) {
        uint32_t* out = TileWords(job, tile, first) + r;
        const bool exists = begin + r < job.rows;
        const bf16* x = job.x + (begin + r) * job.x_stride + first * 32;
        for (int64_t group = first; group < end; ++group, out += 2 * V::kSteps * rows) {
          for (int64_t step = 0; step < V::kSteps; ++step, x += kPerStep) {
            uint32_t e = 0, o = 0;
            if (exists) V::PackStep(x, &e, &o);
            out[step * rows] = e;
            out[(V::kSteps + step) * rows] = o;
          }
        }
      }
    }
  }

  static int64_t RunItems(const LinearJob& job) {
    return (job.n_blocks + kItemBlocks - 1) / kItemBlocks;
  }
  static int64_t ScratchBytes(const LinearJob& job) {
    if (Direct(job)) return V::kDirectTileRows * kItemOutputs * 4;
    return (kPanelWords + kPanelsPerItem * Tiles(job) * kTileAcc) * 4;
  }
  static void Run(const LinearJob& job, int64_t item, void* scratch) {
    const int64_t first = item * kItemBlocks;
    const int64_t left = job.n_blocks - first;
    const int64_t blocks = left < kItemBlocks ? left : kItemBlocks;
    if (Direct(job)) {
      RunDirect(job, first, blocks, static_cast<float*>(scratch));
    } else {
      RunPanels(job, first, blocks, scratch);
    }
  }

  // ---- few rows ----

  // Vectors of a direct tile: as many as fit beside `rows` rows, at least a block.
  static constexpr int DirectVecs(int rows) {
    int vecs = 4;
    while (vecs > kVecsPerBlock && vecs * rows > V::kAccumulators) vecs /= 2;
    return vecs;
  }

  template <int kRows, int kVecs>
  static void DirectTile(const LinearJob& job, const uint32_t* a, int64_t block, float* acc) {
    const int64_t block_stride = 16 * job.k_padded;
    const DirectWeights<V> weights{job.weights + block * block_stride, block_stride};
    AddTile<V, kRows, kVecs>(a, weights, job.k_padded / 32, acc, kItemOutputs);
  }

  template <int kRows>
  static void DirectBlocks(const LinearJob& job, const uint32_t* a, int64_t first, int64_t blocks,
                           float* acc) {
    constexpr int kVecs = DirectVecs(kRows);
    constexpr int64_t kBlocks = kVecs / kVecsPerBlock;
    int64_t b = 0;
    for (; b + kBlocks <= blocks; b += kBlocks) {
      DirectTile<kRows, kVecs>(job, a, first + b, acc + b * 16);
    }
    for (; b < blocks; ++b) {
      DirectTile<kRows, static_cast<int>(kVecsPerBlock)>(job, a, first + b, acc + b * 16);
    }
  }

  template <int kRows>
  static void DirectRows(int64_t rows, const LinearJob& job, const uint32_t* a, int64_t first,
                         int64_t blocks, float* acc) {
    if (rows == kRows) return DirectBlocks<kRows>(job, a, first, blocks, acc);
    if constexpr (kRows > 1) return DirectRows<kRows - 1>(rows, job, a, first, blocks, acc);
  }

  static void RunDirect(const LinearJob& job, int64_t first, int64_t blocks, float* acc) {
    for (int64_t tile = 0; tile < Tiles(job); ++tile) {
      const int64_t begin = TileBegin(job, tile);
      const int64_t rows = TileBegin(job, tile + 1) - begin;
      for (int64_t i = 0; i < rows * kItemOutputs; ++i) acc[i] = 0;
      DirectRows<V::kDirectTileRows>(rows, job, TileWords(job, tile, 0), first, blocks, acc);
      for (int64_t r = 0; r < rows; ++r) {
        FinishRow(job, begin + r, first, blocks,
                  [&](int64_t block) { return acc + r * kItemOutputs + (block - first) * 16; });
      }
    }
  }

  // ---- many rows ----

  // Words of `groups` groups from `group` on, of the blocks of a panel that exist.
  static void LayOutPanel(const LinearJob& job, int64_t block, int64_t blocks, int64_t group,
                          int64_t groups, uint32_t* words) {
    const int64_t block_stride = 16 * job.k_padded;
    for (int64_t b = 0; b < blocks; ++b) {
      const bf16* from = job.weights + (block + b) * block_stride + group * 512;
      for (int64_t g = 0; g < groups; ++g, from += 512) {
        uint32_t* to = words + g * kGroupWords + b * 16;
        for (int chain = 0; chain < 2; ++chain) {
          for (int step = 0; step < V::kSteps; ++step, to += V::kTileVecs * V::kLanes) {
            for (int half = 0; half < kVecsPerBlock; ++half) {
              V::StoreWords(to + half * V::kLanes, V::Weights(from, step, half, chain));
            }
          }
        }
      }
    }
  }

  static void RunPanels(const LinearJob& job, int64_t first, int64_t blocks, void* scratch) {
    uint32_t* words = static_cast<uint32_t*>(scratch);
    float* acc = static_cast<float*>(scratch) + kPanelWords;
    const int64_t tiles = Tiles(job);
    const int64_t panels = (blocks + kPanelBlocks - 1) / kPanelBlocks;
    for (int64_t i = 0; i < panels * tiles * kTileAcc; ++i) acc[i] = 0;
    // A panel without all its blocks computes with what lies in `words`: finite, and never used.
    if (blocks % kPanelBlocks != 0) {
      for (int64_t i = 0; i < kPanelWords; ++i) words[i] = 0;
    }
    const int64_t all_groups = job.k_padded / 32;
    for (int64_t group = 0; group < all_groups; group += kPanelGroups) {
      const int64_t left = all_groups - group;
      const int64_t groups = left < kPanelGroups ? left : kPanelGroups;
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t block = panel * kPanelBlocks;
        const int64_t present = blocks - block < kPanelBlocks ? blocks - block : kPanelBlocks;
        LayOutPanel(job, first + block, present, group, groups, words);
        for (int64_t tile = 0; tile < tiles; ++tile) {
          AddTile<V, V::kTileRows, V::kTileVecs>(
              TileWords(job, tile, group), PanelWeights<V>{words}, groups,
              acc + (panel * tiles + tile) * kTileAcc, V::kTileVecs * V::kLanes);
        }
      }
    }
    for (int64_t row = 0; row < job.rows; ++row) {
      const int64_t tile = row / V::kTileRows, r = row % V::kTileRows;
      FinishRow(job, row, first, blocks, [&](int64_t block) {
        const int64_t panel = (block - first) / kPanelBlocks, b = (block - first) % kPanelBlocks;
        return acc + (panel * tiles + tile) * kTileAcc + (r * kPanelBlocks + b) * 16;
      });
    }
  }
};

}  // namespace
}  // namespace baton
