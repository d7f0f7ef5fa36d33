// The lines of a tile as the chains of the attention take them, step by step: as they lie in the
// pages, or laid out for many rows, each step's part of them made once. For kernel units; V is the
// path's vector (attention_chains.h).
//
// Laid out, in runs of four lines that the same steps take:
//   K [32 dims][4 groups of keys][chain][step][group][16 keys]
//   V [32 keys][4 times 16 dims][chain][step][16 dims of each of the four]
#pragma once

#include "engine/cpu/attention_tile.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

inline constexpr int kLineElements = 2 * kLanes;
inline constexpr int kGroupLines = kGroupKeys / 2;  // V lines of a group per sixteen dims
inline constexpr int kRunLines = 4;

enum { kEven = 0, kOdd = 1 };

inline void PrefetchLine(const bf16* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}
inline void PrefetchToL2(const bf16* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
}

// Those of C columns, in the pages, lines `stride` apart.
template <class V, int C>
struct PageLines {
  const bf16* at[C];
  int64_t stride;

  template <int chain>
  typename V::Float Load(int c) const {
    return V::template LoadStep<chain>(at[c], stride);
  }
  void Next() {
    for (int c = 0; c < C; ++c) at[c] += V::kStepLines * stride;
  }
};

// Of one chain in 32 k: steps, and floats of a run.
template <class V>
inline constexpr int kChainSteps = V::kWords / 2;
template <class V>
inline constexpr int64_t kChainFloats = kChainSteps<V>* kRunLines* kLanes;

// Those of columns of a run that is laid out.
struct LaidOutLines {
  const float* at;
  void Next() { at += kRunLines * kLanes; }
};
template <class V>
struct LaidOutColumns : LaidOutLines {
  template <int chain>
  typename V::Float Load(int c) const {
    return V::Load(at + chain * kChainFloats<V> + c * V::kWidth);
  }
};

// Of a tile: K's runs of 32 dims, V's of 32 keys.
inline int RunsOf(int value_dim) {
  return (value_dim + kRunLines * kLanes - 1) / (kRunLines * kLanes);
}
template <class V>
inline int64_t KeyRun(int k, int group) {
  return (k / 32 * (kTileGroups / kRunLines) + group / kRunLines) * 2 * kChainFloats<V>;
}
template <class V>
inline int64_t ValueRun(int value_dim, int group, int line) {
  return (group / 2 * RunsOf(value_dim) + line / kRunLines) * 2 * kChainFloats<V>;
}

// Both chains' parts of one step.
template <class V>
inline void LayOutStep(const bf16* line, int64_t line_stride, float* to) {
  for (int lane = 0; lane < kLanes; lane += V::kWidth) {
    V::Store(to + lane, V::template LoadStep<kEven>(line + 2 * lane, line_stride));
    V::Store(to + kChainFloats<V> + lane, V::template LoadStep<kOdd>(line + 2 * lane, line_stride));
  }
}

template <class V>
void LayOutKeys(const KeyTile& tile) {
  for (int j = 0; j < tile.all_groups; ++j) {
    const bf16* line = tile.k[j];
    for (int k = 0; k < tile.key_dim; k += 32) {
      float* to = tile.k_laid_out + KeyRun<V>(k, j) + j % kRunLines * kLanes;
#pragma GCC unroll 4
      for (int step = 0; step < kChainSteps<V>; ++step, to += kRunLines * kLanes) {
        LayOutStep<V>(line, kLineElements, to);
        line += V::kStepLines * kLineElements;
      }
    }
  }
}

template <class V>
void LayOutValues(const KeyTile& tile) {
  constexpr int kSteps = kChainSteps<V> / 2;  // of a group
  for (int j = 0; j < tile.all_groups; ++j) {
    const bf16* line = tile.v[j];
    for (int step = j % 2 * kSteps; step < (j % 2 + 1) * kSteps; ++step) {
#pragma GCC unroll 4
      for (int d = 0; d < tile.value_dim; d += kLanes, line += kLineElements) {
        float* const to = tile.v_laid_out + ValueRun<V>(tile.value_dim, j, d / kLanes) +
                          (step * kRunLines + d / kLanes % kRunLines) * kLanes;
        LayOutStep<V>(line, 2 * tile.value_dim, to);
      }
      line += (V::kStepLines - 1) * 2 * tile.value_dim;
    }
  }
}

}  // namespace
}  // namespace baton
