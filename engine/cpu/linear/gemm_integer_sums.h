// The sums of a register tile of gemm_integer.h (which names the policies V and W): forms of stored
// weights, the order in which a tile reads weights, and the products of one group of k. For kernel
// units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_sums.h"
#include "engine/cpu/linear/weight_prefetch.h"

namespace baton {
namespace {

struct Int8Weights {
  static constexpr bool kIsGrouped = false;
  static constexpr int32_t kZeroPoint = 128;
  static constexpr int64_t kQuadBytes = 64;
  // Bytes of k quad `quad` of a block, half `half` of its outputs where a vector holds eight.
  template <class V>
  static inline typename V::Vec Quad(const char* lines, int64_t quad, int half) {
    return V::Load(lines + quad * 64 + half * 32);
  }
};

struct Int4Weights {
  static constexpr bool kIsGrouped = true;
  static constexpr int32_t kZeroPoint = 8;
  static constexpr int64_t kQuadBytes = 32;
  template <class V>
  static inline typename V::Vec Quad(const char* lines, int64_t quad, int half) {
    const typename V::Vec line = V::Load(lines + quad / 2 * 64 + half * 32);
    return quad % 2 == 0 ? V::LowHalves(line) : V::HighHalves(line);
  }
};

constexpr int64_t kScaleBytes = 64;  // scales of one group of a block
constexpr int64_t kStepQuads = 8;    // a step is 32 k
constexpr int64_t kStepK = 32;
constexpr int kUnrolledQuads = 4;                              // of a loop over quads
constexpr int64_t kStepChances = kStepQuads / kUnrolledQuads;  // in a step, to prefetch

// The sum of the values of some steps. (Added up lane by lane at its end only: step by step that
// took half of the time of packing a row.)
struct StepSum {
  __m256i sums = _mm256_setzero_si256();  // of values + 128

  void Add(const int8_t* values) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
    const __m256i zero_based = _mm256_xor_si256(all, _mm256_set1_epi8(-128));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(zero_based, _mm256_setzero_si256()));
  }
  int32_t Get(int64_t steps) const {
    alignas(32) int64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
    return static_cast<int32_t>(lanes[0] + lanes[1] + lanes[2] + lanes[3] - 128 * kStepK * steps);
  }
};

// Prefetches to L2 of a direct tile while it reads lines: none; the line `distance` bytes after
// each one; or a share of `next`.
struct NoAhead {
  void Line(const char* /*line*/) const {}
  void AfterQuads() const {}
};
struct StreamAhead {
  int64_t distance;
  inline __attribute__((always_inline)) void Line(const char* line) const {
    _mm_prefetch(line + distance, _MM_HINT_T1);
  }
  void AfterQuads() const {}
};
struct SharedAhead {
  WeightPrefetch* next;
  void Line(const char* /*line*/) const {}
  inline __attribute__((always_inline)) void AfterQuads() const { next->Step(); }
};

// Weights of a few blocks, read from the packed matrix: parallel streams.
template <class V, class W, class Ahead>
struct BlockWeights {
  const char* from;  // lines of the first block
  int64_t block_bytes;
  Ahead ahead;
  template <int kVecs>
  inline __attribute__((always_inline)) typename V::Vec Get(int64_t quad, int v, int word) const {
    constexpr int kVecsPerBlock = 16 / V::kLanes;
    const int half = v % kVecsPerBlock;
    constexpr int64_t kBytes = V::PrefetchBytes(kVecs / kVecsPerBlock);
    const char* const block = from + v / kVecsPerBlock * block_bytes;
    if (half == 0 && word == 0 && quad * W::kQuadBytes % 64 == 0) {
      const char* const line = block + quad * W::kQuadBytes;
      if (kBytes > 0) _mm_prefetch(line + kBytes, _MM_HINT_T0);
      ahead.Line(line);
    }
    return V::Word(W::template Quad<V>(block, quad, half), word);
  }
  template <int kVecs>
  void NextStep() {
    from += kStepQuads * W::kQuadBytes;
  }
  // Called for each group, with its scales.
  inline __attribute__((always_inline)) void AtScales(const char* scales) const {
    ahead.Line(scales);
  }
  inline __attribute__((always_inline)) void AfterQuads() const { ahead.AfterQuads(); }
};

// Weights laid out as words: [quad][word][vec][lane].
template <class V>
struct WordWeights {
  const char* from;
  template <int kVecs>
  inline __attribute__((always_inline)) typename V::Vec Get(int64_t quad, int v, int word) const {
    return V::Load(from + ((quad * V::kWords + word) * kVecs + v) * V::kLanes * 4);
  }
  template <int kVecs>
  void NextStep() {
    from += kStepQuads * V::kWords * kVecs * V::kLanes * 4;
  }
  void AtScales(const char* /*scales*/) const {}
  void AfterQuads() const {}
};

// sums[r][v][quad % kSplit] += steps [first, end) of rows a ([step][row][word][8 quads], from
// `first` on) times weights.
template <class V, int kRows, int kVecs, int kSplit, class Weights>
inline __attribute__((always_inline)) void AddSteps(const int32_t* a, const Weights& weights,
                                                    int64_t first, int64_t end,
                                                    typename V::Vec (&sums)[kRows][kVecs][kSplit]) {
  for (int64_t quad = first * kStepQuads; quad < end * kStepQuads; quad += kStepQuads) {
#pragma GCC unroll 1
    for (int part = 0; part < kStepQuads; part += kUnrolledQuads, a += kUnrolledQuads) {
#pragma GCC unroll 4
      for (int q = 0; q < kUnrolledQuads; ++q) {
#pragma GCC unroll 2
        for (int word = 0; word < V::kWords; ++word) {
          typename V::Vec w[kVecs];
#pragma GCC unroll 16
          for (int v = 0; v < kVecs; ++v) {
            w[v] = weights.template Get<kVecs>(quad + part + q, v, word);
          }
#pragma GCC unroll 24
          for (int r = 0; r < kRows; ++r) {
            const typename V::Vec x = V::Splat(a[(r * V::kWords + word) * kStepQuads + q]);
#pragma GCC unroll 16
            for (int v = 0; v < kVecs; ++v) {
              sums[r][v][q % kSplit] = V::Dot(sums[r][v][q % kSplit], w[v], x);
            }
          }
        }
      }
      weights.AfterQuads();
    }
    a += (kRows * V::kWords - 1) * kStepQuads;
  }
}

// The sums before their first products: acc's (int8), or `starts`.
template <class V, class W, int kRows, int kVecs, int kSplit>
inline __attribute__((always_inline)) void StartGroup(
    const int32_t* starts, TileSums acc, typename V::Vec (&sums)[kRows][kVecs][kSplit]) {
  const bool from_starts = W::kIsGrouped || acc.start;
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v][0] =
          from_starts ? V::Splat(starts[r]) : V::Load(acc.sums + r * acc.stride + v * V::kLanes);
#pragma GCC unroll 8
      for (int s = 1; s < kSplit; ++s) sums[r][v][s] = V::Splat(0);
    }
  }
}

// Stores the sums in acc (int8), or acc = or += the scaled sums (int4).
template <class V, class W, bool kStart, int kRows, int kVecs, int kSplit>
inline __attribute__((always_inline)) void StoreGroup(typename V::Vec (&sums)[kRows][kVecs][kSplit],
                                                      const char* scales, int64_t scale_stride,
                                                      TileSums acc) {
  constexpr int kVecsPerBlock = 16 / V::kLanes;
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      float* const out = acc.sums + r * acc.stride + v * V::kLanes;
#pragma GCC unroll 8
      for (int s = 1; s < kSplit; ++s) sums[r][v][0] = V::Add(sums[r][v][0], sums[r][v][s]);
      if constexpr (W::kIsGrouped) {
        const char* const block = scales + v / kVecsPerBlock * scale_stride;
        V::FoldGroup(sums[r][v][0], block + v % kVecsPerBlock * V::kLanes * 4,
                     kStart ? kNothing : out, out);
      } else {
        V::Store(out, sums[r][v][0]);
      }
    }
  }
}
template <class V, class W, int kRows, int kVecs, int kSplit>
inline __attribute__((always_inline)) void EndGroup(typename V::Vec (&sums)[kRows][kVecs][kSplit],
                                                    const char* scales, int64_t scale_stride,
                                                    TileSums acc) {
  if (acc.start) {
    StoreGroup<V, W, true>(sums, scales, scale_stride, acc);
  } else {
    StoreGroup<V, W, false>(sums, scales, scale_stride, acc);
  }
}

// sums[r][v][0] = the products of one step of rows a times weights, as shorts.
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void MultiplyStep(const int32_t* a, const Weights& weights,
                                                        typename V::Vec (&sums)[kRows][kVecs][1]) {
#pragma GCC unroll 8
  for (int quad = 0; quad < kStepQuads; ++quad) {
    typename V::Vec w[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) w[v] = weights.template Get<kVecs>(quad, v, 0);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      const typename V::Vec x = V::Splat(a[r * kStepQuads + quad]);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        sums[r][v][0] = quad == 0 ? V::Multiply(w[v], x) : V::Dot(sums[r][v][0], w[v], x);
      }
    }
  }
}

template <class V, int kRows, int kVecs>
inline __attribute__((always_inline)) void StoreSums(const typename V::Vec (&sums)[kRows][kVecs][1],
                                                     int32_t (&to)[kRows][kVecs][V::kLanes]) {
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) V::Store(to[r][v], sums[r][v][0]);
  }
}

// A whole group's sums with a Dot that adds shorts: the sums of one step are in registers, the sums
// of the steps before it wait in L1.
template <class V, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void AddGroupInShorts(
    const int32_t* a, Weights weights, int64_t steps, typename V::Vec (&sums)[kRows][kVecs][1]) {
  static_assert(V::kWords == 1);
  alignas(64) int32_t waiting[kRows][kVecs][V::kLanes];
  StoreSums<V>(sums, waiting);
  // Keeps `waiting` in memory, as AddGroup does, and makes the compiler store sums in each branch
  // instead of carrying them to one place for both.
  __asm__ volatile("" : : "r"(waiting) : "memory");
  for (;; a += kRows * kStepQuads, weights.template NextStep<kVecs>()) {
    MultiplyStep<V, kRows, kVecs>(a, weights, sums);
    __asm__ volatile("" : : "r"(waiting) : "memory");
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        sums[r][v][0] = V::Add(V::Load(waiting[r][v]), V::Widen(sums[r][v][0]));
      }
    }
    if (--steps == 0) return;
    StoreSums<V>(sums, waiting);
    __asm__ volatile("" : : "r"(waiting) : "memory");
  }
}

// Adds one group, or a part of one, for kRows rows and kVecs vectors. int8: acc (int32) += the
// sums, or = `starts` and the sums. int4: acc (fp32) = fma(sums from `starts` on, scales, acc or
// +0). scales: fp32, scale_stride bytes from block to block. acc: [row][vec][lane].
template <class V, class W, int kRows, int kVecs, int kSplit, class Weights>
inline __attribute__((always_inline)) void AddGroup(const int32_t* a, const Weights& weights,
                                                    int64_t steps, const int32_t* starts,
                                                    const char* scales, int64_t scale_stride,
                                                    TileSums acc) {
  if constexpr (V::kStepInShorts) {
    static_assert(W::kIsGrouped);
    typename V::Vec sums[kRows][kVecs][1];
    StartGroup<V, W>(starts, acc, sums);
    AddGroupInShorts<V, kRows, kVecs>(a, weights, steps, sums);
    EndGroup<V, W>(sums, scales, scale_stride, acc);
  } else {
    typename V::Vec sums[kRows][kVecs][kSplit];
    StartGroup<V, W>(starts, acc, sums);
    // Loads of what follows would take the registers that the sums need.
    __asm__ volatile("" : : : "memory");
    AddSteps<V, kRows, kVecs, kSplit>(a, weights, 0, steps, sums);
    __asm__ volatile("" : : : "memory");
    EndGroup<V, W>(sums, scales, scale_stride, acc);
  }
}

// Adds `steps` steps of whole groups of int4 with the sums of the groups before in registers, for
// tiles so small that they fit there beside the sums of a group: acc = or += the scaled sums.
// Weights of the next group are `stride` bytes on, its scales scales_stride.
template <class V, class W, int kRows, int kVecs, class Weights>
inline __attribute__((always_inline)) void AddGroups(const int32_t* a, Weights weights,
                                                     int64_t stride, int64_t steps,
                                                     int64_t group_steps, const int32_t* starts,
                                                     int64_t rows, const char* scales,
                                                     int64_t scales_stride, int64_t scale_stride,
                                                     TileSums acc) {
  typename V::Folded folded[kRows][kVecs];
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      folded[r][v] =
          V::LoadFolded(acc.start ? kNothing : acc.sums + r * acc.stride + v * V::kLanes);
    }
  }
  for (; steps > 0; steps -= group_steps) {
    typename V::Vec sums[kRows][kVecs][1];
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sums[r][v][0] = V::Splat(starts[r]);
    }
    weights.AtScales(scales);
    AddSteps<V, kRows, kVecs, 1>(a, weights, 0, group_steps, sums);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        folded[r][v] = V::Fold(sums[r][v][0], scales + v * scale_stride, folded[r][v]);
      }
    }
    a += group_steps * kRows * V::kWords * kStepQuads;
    starts += rows;
    weights.from += stride;
    scales += scales_stride;
  }
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      V::StoreFolded(acc.sums + r * acc.stride + v * V::kLanes, folded[r][v]);
    }
  }
}

}  // namespace
}  // namespace baton
