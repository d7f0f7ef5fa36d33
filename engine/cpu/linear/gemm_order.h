// The tile order of numerics v1 (linear.h) on vector registers: per output and 32-k group two
// chains, e of the even k and o of the odd ones, whose sum is added to the accumulator. For kernel
// units.
//
// V::kPasses of the policy V (gemm_vector.h) chooses one of two ways:
//   V::kPasses == 2   A vector holds one chain of kLanes outputs. The e chains of a tile run first,
//                     wait in L1, then the o chains.
//   V::kPasses == 1   A vector holds both chains of kLanes / 2 outputs side by side, in turn e and
//                     o. Nothing has to wait, as few words are loaded as in the other way, and at
//                     the end of a group two shuffles of two vectors separate the chains, which
//                     costs nothing if shuffles and additions have their own units (Zen).
//                     If registers have room for a tile's accumulators beside its chains, the
//                     accumulators stay there.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_sums.h"
#include "engine/cpu/linear/weight_prefetch.h"
#include "engine/numerics/bf16.h"

namespace baton {
namespace {

template <class V>
constexpr int kVecsPerBlock = 32 / (V::kLanes * V::kPasses);  // vectors of a block of 16 outputs

// Weights of one group and of some vectors of a tile: separate pointers, so that the compiler
// cannot precompute their sums with other numbers (it would keep dozens of sums on the stack).
template <class V, int kBlocks>
struct DirectPart {
  const bf16* at[kBlocks];

  typename V::Vec Get(int64_t /*group*/, int step, int v, int pass) const {
    return V::Weights(at[v / kVecsPerBlock<V>], step, v % kVecsPerBlock<V>, pass);
  }
};

// Weights of a tile's vectors, read from the packed matrix.
template <class V, int kVecs>
struct DirectWeights {
  static constexpr int kBlockVecs = kVecsPerBlock<V>;
  const bf16* blocks;
  int64_t block_stride;  // bf16s from one block to the next
  WeightPrefetch* ahead;
  // From group `end` on, the next tile's first groups are read: `jump` bf16s behind the lines that
  // would follow.
  int64_t end, jump;

  inline __attribute__((always_inline)) typename V::Vec Get(int64_t group, int step, int v,
                                                            int pass) const {
    const bf16* tile = blocks + v / kBlockVecs * block_stride + group * 512;
    constexpr int64_t kAhead = V::PrefetchBytes(kVecs / kBlockVecs);
    if (kAhead > 0 && pass == 0 && v % kBlockVecs == 0) {
      const bf16* line = tile + step * (512 / V::kSteps);
      if (group + kAhead / 1024 >= end) line += jump;
      _mm_prefetch(reinterpret_cast<const char*>(line) + kAhead, _MM_HINT_T0);
    }
    return V::Weights(tile, step, v % kBlockVecs, pass);
  }
  // Vectors that a tile of kRows rows takes at once.
  template <int kRows>
  static constexpr int PartVecs() {
    return V::VecsAtOnce(kRows) < kVecs ? V::VecsAtOnce(kRows) : kVecs;
  }
  // Weights of a group for kPartVecs vectors from v on.
  template <int kPartVecs>
  auto Part(int64_t group, int v) const {
    constexpr int kBlocks = kPartVecs < kBlockVecs ? 1 : kPartVecs / kBlockVecs;
    DirectPart<V, kBlocks> part;
    for (int block = 0; block < kBlocks; ++block) {
      const bf16* first = blocks + (v / kBlockVecs + block) * block_stride + group * 512;
      first += v % kBlockVecs * (32 / kBlockVecs);
      __asm__("" : "+r"(first));
      part.at[block] = first;
    }
    return part;
  }
  void AfterPass() const { ahead->Step(); }
};

// Weights of a tile's vectors, laid out as words: [group][pass][step][vec][lane].
template <class V, int kVecs>
struct PanelWeights {
  const uint32_t* words;
  WeightPrefetch* ahead;

  inline __attribute__((always_inline)) typename V::Vec Get(int64_t group, int step, int v,
                                                            int pass) const {
    const int64_t at = ((group * V::kPasses + pass) * V::kSteps + step) * kVecs + v;
    return V::LoadWords(words + at * V::kLanes);
  }
  template <int kRows>
  static constexpr int PartVecs() {
    return kVecs;
  }
  template <int kPartVecs>
  PanelWeights Part(int64_t group, int /*v*/) const {
    return {words + group * V::kPasses * V::kSteps * kVecs * V::kLanes, ahead};
  }
  void AfterPass() const { ahead->Step(); }
};

// sums = dot(sums, x, weights) of one step; a: the words of that group and pass, [row][step].
// Registers hold the shorter side; the other side is read one operand at a time.
template <class V, int kRows, int kVecs, class Weights, class Dot>
inline __attribute__((always_inline)) void AddStep(const uint32_t* a, const Weights& b,
                                                   int64_t group, int step, int pass,
                                                   const Dot& dot,
                                                   typename V::Vec (&sums)[kRows][kVecs]) {
  constexpr int kWords = 2 / V::kPasses;
  if constexpr (V::kPasses == 1 && kRows < kVecs) {
    typename V::Vec x[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) x[r] = V::Broadcast(a + (r * V::kSteps + step) * kWords);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      const typename V::Vec weights = b.Get(group, step, v, pass);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r][v] = dot(sums[r][v], x[r], weights);
    }
  } else {
    typename V::Vec weights[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) weights[v] = b.Get(group, step, v, pass);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename V::Vec x = V::Broadcast(a + (r * V::kSteps + step) * kWords);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sums[r][v] = dot(sums[r][v], x, weights[v]);
    }
  }
}

// sums += one chain of one group.
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void AddChain(const uint32_t* a, const Weights& b,
                                                    int64_t group, int pass,
                                                    typename V::Vec (&sums)[kRows][kVecs]) {
#pragma GCC unroll 2
  for (int step = 0; step < V::kSteps; ++step) {
    AddStep<V>(a, b, group, step, pass, V::Dot, sums);
  }
}

// sums = both chains of the first group of `b`. The sums start with a product, not with +0: a start
// with +0 would give +0 where the product is -0. No bit of an output shows the difference:
// accumulators start as +0 plus a sum, so they are never -0, and adding -0 changes nothing.
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void RunBothChains(const uint32_t* a, const Weights& b,
                                                         typename V::Vec (&sums)[kRows][kVecs]) {
  const auto product = [](typename V::Vec, typename V::Vec x, typename V::Vec weights) {
    return V::Product(x, weights);
  };
  AddStep<V>(a, b, 0, 0, 0, product, sums);
#pragma GCC unroll 16
  for (int step = 1; step < V::kSteps; ++step) {
    AddStep<V>(a, b, 0, step, 0, V::Dot, sums);
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

// The order of numerics v1. (Benchmarks replace it by a plain chain, to measure its cost.)
struct TileOrder {
  // True if registers hold the accumulators of a tile, the chains of kAtOnce vectors computed at
  // once, and their operands.
  template <class V, int kRows, int kVecs, int kAtOnce>
  static constexpr bool KeepsSums() {
    constexpr int kChains = kRows * kVecs, kOperands = (kRows < kVecs ? kRows : kVecs) + 1;
    return kAtOnce == kVecs && kChains + kChains / 2 + kOperands <= V::kRegisters;
  }

  // acc (kRows rows, kVecs vectors) = or += `groups` groups of rows a ([group][pass][row][step])
  // times weights b.
  template <class V, int kRows, int kVecs, class Weights>
  static void AddTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
    if constexpr (V::kPasses == 2) {
      AddInTurn<V, kRows, kVecs>(a, b, groups, acc);
    } else if constexpr (KeepsSums<V, kRows, kVecs, Weights::template PartVecs<kRows>()>()) {
      AddKeepingSums<V, kRows, kVecs>(a, b, groups, acc);
    } else {
      AddSideBySide<V, kRows, kVecs>(a, b, groups, acc);
    }
  }

 private:
  template <class V, int kRows, int kVecs, class Weights>
  static void AddInTurn(const uint32_t* a, Weights b, int64_t groups, TileSums acc);
  // noinline: in larger functions g++ 12 keeps sums in memory.
  template <class V, int kRows, int kVecs, class Weights>
  static __attribute__((noinline)) void AddKeepingSums(const uint32_t* a, Weights b, int64_t groups,
                                                       TileSums acc);
  template <class V, int kRows, int kVecs, class Weights>
  static __attribute__((noinline)) void AddSideBySide(const uint32_t* a, Weights b, int64_t groups,
                                                      TileSums acc);

  // *out = or += the sum of a group.
  template <class V>
  static inline __attribute__((always_inline)) void AddGroup(bool start, typename V::Vec group_sum,
                                                             float* out) {
    V::StoreAcc(out, V::Add(start ? V::Zero() : V::LoadAcc(out), group_sum));
  }
  template <class V, bool kStart, int kRows, int kVecs>
  static inline __attribute__((always_inline)) void AddGroups(
      const float (&even)[kRows][kVecs][V::kLanes], const typename V::Vec (&odd)[kRows][kVecs],
      TileSums acc) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        AddGroup<V>(kStart, V::Add(V::LoadAcc(even[r][v]), odd[r][v]),
                    acc.sums + r * acc.stride + v * V::kLanes);
      }
    }
  }
  template <class V, bool kStart, int kRows, int kVecs>
  static inline __attribute__((always_inline)) void AddGroups(
      const typename V::Vec (&sums)[kRows][kVecs], TileSums acc) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; v += 2) {
        AddGroup<V>(kStart, V::AddChains(sums[r][v], sums[r][v + 1]),
                    acc.sums + r * acc.stride + v / 2 * V::kLanes);
      }
    }
  }
};

template <class V, int kRows, int kVecs, class Weights>
void TileOrder::AddInTurn(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
  alignas(64) float even[kRows][kVecs][V::kLanes];
  for (int64_t group = 0; group < groups; ++group) {
    typename V::Vec sums[kRows][kVecs];
    Clear<V>(sums);
    AddChain<V>(a, b, group, 0, sums);
    b.AfterPass();
    a += V::kSteps * kRows;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) V::StoreAcc(even[r][v], sums[r][v]);
    }
    // The clobber stops the compiler from keeping the values in registers that the other chain
    // needs.
    __asm__ volatile("" : : "r"(even) : "memory");
    Clear<V>(sums);
    AddChain<V>(a, b, group, 1, sums);
    b.AfterPass();
    a += V::kSteps * kRows;
    if (acc.start) {
      AddGroups<V, true>(even, sums, acc);
    } else {
      AddGroups<V, false>(even, sums, acc);
    }
    acc.start = false;
  }
}

// Keeps the accumulators in registers over all groups.
template <class V, int kRows, int kVecs, class Weights>
void TileOrder::AddKeepingSums(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
  typename V::Vec kept[kRows][kVecs / 2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs / 2; ++v) {
      kept[r][v] = acc.start ? V::Zero() : V::LoadAcc(acc.sums + r * acc.stride + v * V::kLanes);
    }
  }
  for (int64_t group = 0; group < groups; ++group, a += 2 * V::kSteps * kRows) {
    typename V::Vec sums[kRows][kVecs];
    RunBothChains<V>(a, b.template Part<kVecs>(group, 0), sums);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; v += 2) {
        kept[r][v / 2] = V::Add(kept[r][v / 2], V::AddChains(sums[r][v], sums[r][v + 1]));
      }
    }
    b.AfterPass();
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs / 2; ++v) {
      V::StoreAcc(acc.sums + r * acc.stride + v * V::kLanes, kept[r][v]);
    }
  }
}

// A tile of more vectors than registers hold goes through each group in parts: its blocks are
// parallel streams from memory all the same.
template <class V, int kRows, int kVecs, class Weights>
void TileOrder::AddSideBySide(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
  constexpr int kAtOnce = Weights::template PartVecs<kRows>();
  static_assert(kVecs % kAtOnce == 0 && kAtOnce % 2 == 0);
  for (int64_t group = 0; group < groups; ++group, a += 2 * V::kSteps * kRows) {
    for (int v = 0; v < kVecs; v += kAtOnce) {
      typename V::Vec sums[kRows][kAtOnce];
      RunBothChains<V>(a, b.template Part<kAtOnce>(group, v), sums);
      const TileSums part = {acc.sums + v / 2 * V::kLanes, acc.stride, acc.start};
      if (acc.start) {
        AddGroups<V, true>(sums, part);
      } else {
        AddGroups<V, false>(sums, part);
      }
    }
    b.AfterPass();
    acc.start = false;
  }
}

}  // namespace
}  // namespace baton
