// The lines of a tile in the form that the chains of the attention read, step by step: as stored in
// the pages, or laid out for many rows, so that each step's part is made once; and prefetches of
// the next lines from memory. For kernel units; V is the path's vector (attention_chains.h).
//
// Laid out form, in runs of four lines that the same steps read:
//   K [32 dims][4 groups of keys][chain][step][group][16 keys]
//   V [32 keys][4 times 16 dims][chain][step][16 dims of each of the four]
#pragma once

#include "engine/cpu/attention/attention_expand.h"
#include "engine/cpu/attention/attention_tile.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

inline constexpr int kLineElements = 2 * kLanes;
inline constexpr int kGroupLines = kGroupKeys / 2;  // V lines of a group per sixteen dims
inline constexpr int kRunLines = 4;

enum { kEven = 0, kOdd = 1 };

// Forms of the lines of a tile: bf16 in the pages, int8 numbers in the pages, or laid out. Ahead:
// also prefetches the next lines from memory.
enum LineSource { kPages, kPagesAhead, kNumbers, kNumbersAhead, kLaidOut, kLaidOutAhead, kSources };
constexpr bool InPages(LineSource source) { return source < kLaidOut; }
constexpr bool OfNumbers(LineSource source) {
  return source == kNumbers || source == kNumbersAhead;
}
constexpr bool IsAhead(LineSource source) { return source % 2 != 0; }
constexpr LineSource WithoutAhead(LineSource source) {
  return static_cast<LineSource>(source / 2 * 2);
}

inline void PrefetchToL2(const char* line) { _mm_prefetch(line, _MM_HINT_T1); }

// A group of the next tile as the pages hold it, and the size of its elements.
inline const char* NextKeyGroup(const KeyTile& tile, int group) {
  return tile.source != nullptr ? reinterpret_cast<const char*>(tile.source->next_k[group])
                                : reinterpret_cast<const char*>(tile.next_k[group]);
}
inline const char* NextValueGroup(const KeyTile& tile, int group) {
  return tile.source != nullptr ? reinterpret_cast<const char*>(tile.source->next_v[group])
                                : reinterpret_cast<const char*>(tile.next_v[group]);
}
inline int ElementBytes(const KeyTile& tile) { return tile.source != nullptr ? 1 : 2; }

// No prefetch.
struct NoneAhead {
  template <int C, int kWidth, int kSteps>
  void At(int /*step*/, bool /*is_number*/) {}
};

// Prefetches the next groups line by line while others are read: as four streams of two groups
// each, because memory gives several streams more than one.
template <LineSource kSource>
class GroupsAhead {
 public:
  template <class Element>
  GroupsAhead(const Element* const (&groups)[kTileGroups], int64_t group_bytes)
      : bytes_(group_bytes) {
    for (int j = 0; j < kTileGroups; ++j)
      groups_[j % 2][j / 2] = reinterpret_cast<const char*>(groups[j]);
  }
  // Called before a step (one of kSteps that read sixteen k) of C columns of kWidth lanes:
  // prefetches as many lines as the step reads.
  template <int C, int kWidth, int kSteps>
  void At(int step, bool /*is_number*/) {
    constexpr int kRead = C * kWidth * kGroupKeys * (OfNumbers(kSource) ? 1 : 2) / kLineBytes;
    constexpr int kTimes = kRead < kStreams ? 1 : kRead / kStreams;
    static_assert(kTimes <= kSteps);
    if (step % (kSteps / kTimes) == 0) PrefetchLines();
  }

 private:
  static constexpr int kStreams = kTileGroups / 2, kLineBytes = 64;

  void PrefetchLines() {
#pragma GCC unroll 4
    for (int i = 0; i < kStreams; ++i)
      _mm_prefetch(groups_[turn_][i] + at_, InPages(kSource) ? _MM_HINT_T0 : _MM_HINT_T1);
    at_ += kLineBytes;
    if (at_ < bytes_) return;
    at_ = 0;
    turn_ = 1;
  }

  const char* groups_[2][kStreams];
  int64_t bytes_, at_ = 0;
  int turn_ = 0;
};

// The tile after this one, brought to L2 line by line while this one is computed: in the order of
// memory and evenly, three quarters beside the products and one beside the softmax. A machine gives
// one core all of its memory's speed only while requests never pause, and drops prefetches that
// come faster than memory answers (Zen 4, 4 rows, 64 dims: 20.8 GB/s; 16 to 18 without the quarter
// beside the softmax, 10 with prefetches to L1 or in several streams).
class TileAhead {
 public:
  // Stops prefetching until the next tile begins.
  void Clear() {
    group_ = kGroups;
    beside_softmax_ = 0;
  }
  // n: rows that attend this tile.
  template <class Element>
  void Begin(int n, const Element* const (&k)[kTileGroups], int64_t k_bytes,
             const Element* const (&v)[kTileGroups], int64_t v_bytes) {
    for (int j = 0; j < kTileGroups; ++j) {
      groups_[j] = reinterpret_cast<const char*>(k[j]);
      groups_[kTileGroups + j] = reinterpret_cast<const char*>(v[j]);
    }
    bytes_[0] = k_bytes;
    bytes_[1] = v_bytes;
    beside_softmax_ = static_cast<int>((k_bytes + v_bytes) * kTileGroups / kLineBytes) / (16 * n);
    at_ = 0;
    group_ = 0;
  }
  // Called before a step (one of kSteps that read sixteen k) of C columns of kWidth lanes:
  // prefetches three lines for every four that the step reads.
  template <int C, int kWidth, int kSteps>
  inline __attribute__((always_inline)) void At(int step, bool is_number) {
    constexpr int kRead = C * kWidth * kGroupKeys / kLineBytes;
    const int n = (is_number ? 1 : 2) * kRead * 3;
    Prefetch((step + 1) * n / (4 * kSteps) - step * n / (4 * kSteps));
  }
  // Called beside the softmax of a row, four times per row.
  void BesideSoftmax() { Prefetch(beside_softmax_); }

 private:
  static constexpr int kGroups = 2 * kTileGroups, kLineBytes = 64;

  inline __attribute__((always_inline)) void Prefetch(int n) {
    if (group_ >= kGroups) return;
    for (const char* line = groups_[group_] + at_; n > 0;
         --n, line += kLineBytes, at_ += kLineBytes)
      _mm_prefetch(line, _MM_HINT_T1);
    const int64_t bytes = bytes_[group_ / kTileGroups];
    if (at_ < bytes) return;
    at_ -= bytes;
    ++group_;
  }

  const char* groups_[kGroups];
  int64_t bytes_[2], at_;
  int group_ = kGroups, beside_softmax_ = 0;
};

// Lines of C columns in the pages, `stride` apart.
template <class V, int C>
struct PageLines {
  static constexpr bool kSideBySide = V::kSideBySide;
  const bf16* at[C];
  int64_t stride;

  template <int chain>
  typename V::Float Load(int c) const {
    return V::template LoadStep<chain>(at[c], stride);
  }
  void Next() { Skip(1); }
  void NextGroup() {}
  void Skip(int steps) {
    for (int c = 0; c < C; ++c) at[c] += steps * V::kStepLines * stride;
  }
};

// Lines of C columns of int8 in the pages: the bytes of one k are adjacent.
template <class V, int C>
struct NumberLines {
  static constexpr bool kSideBySide = false;
  const int8_t* at[C];
  int64_t stride;  // from one k to the next

  template <int chain>
  typename V::Float Load(int c) const {
    return V::template LoadNumbers<chain>(at[c], stride);
  }
  void Next() { Skip(1); }
  void NextGroup() {}
  void Skip(int steps) {
    for (int c = 0; c < C; ++c) at[c] += 2 * V::kStepLines * steps * stride;
  }
};

// Sizes of one chain in 32 k: steps, and floats of a run.
template <class V>
inline constexpr int kChainSteps = V::kWords / 2;
template <class V>
inline constexpr int64_t kChainFloats = kChainSteps<V>* kRunLines* kLanes;

// Lines of columns of a run that is laid out.
template <class V>
struct LaidOutColumns {
  static constexpr bool kSideBySide = V::kSideBySide;
  const float* at;
  void Next() { at += kRunLines * kLanes; }
  // Advances keys to the next 32 dims.
  void NextGroup() { at += (2 * kTileGroups / kRunLines - 1) * kChainFloats<V>; }
  template <int chain>
  typename V::Float Load(int c) const {
    return V::Load(at + chain * kChainFloats<V> + c * V::kWidth);
  }
};

// Number of runs of a tile: for K one per 32 dims, for V one per 32 keys.
inline int RunsOf(int value_dim) {
  return (value_dim + kRunLines * kLanes - 1) / (kRunLines * kLanes);
}
template <class V>
inline int64_t KeyRun(int k, int group) {
  return (k / 32 * (kTileGroups / kRunLines) + group / kRunLines) * 2 * kChainFloats<V> +
         k % 32 * kChainFloats<V> / 32;
}
template <class V>
inline int64_t ValueRun(int value_dim, int group, int line) {
  return (group / 2 * RunsOf(value_dim) + line / kRunLines) * 2 * kChainFloats<V> +
         group % 2 * kChainFloats<V> / 2;
}

// The lines of C columns from `column` on (in vectors). Keys: from the start of the tile, dims from
// k on. Values: keys from `group` on.
template <class V, LineSource kSource, int C>
inline auto KeyLines(const KeyTile& tile, int k, int column) {
  constexpr int kLineColumns = kLanes / V::kWidth, kRunColumns = kRunLines * kLineColumns;
  if constexpr (!InPages(kSource)) {
    const float* const run = tile.k_laid_out + KeyRun<V>(k, column / kLineColumns);
    return LaidOutColumns<V>{run + column % kRunColumns * V::kWidth};
  } else if constexpr (OfNumbers(kSource)) {
    NumberLines<V, C> lines{{}, kLanes};
    for (int c = 0; c < C; ++c)
      lines.at[c] = Numbers(tile.source->k[(column + c) / kLineColumns]) + k * kLanes +
                    (column + c) % kLineColumns * V::kWidth;
    return lines;
  } else {
    PageLines<V, C> lines{{}, kLineElements};
    for (int c = 0; c < C; ++c)
      lines.at[c] = tile.k[(column + c) / kLineColumns] + k * kLanes +
                    (column + c) % kLineColumns * V::kWidth * 2;
    return lines;
  }
}
template <class V, LineSource kSource, int C>
inline auto ValueLines(const KeyTile& tile, int group, int column) {
  constexpr int kLineColumns = kLanes / V::kWidth, kRunColumns = kRunLines * kLineColumns;
  if constexpr (!InPages(kSource)) {
    const float* const run =
        tile.v_laid_out + ValueRun<V>(tile.value_dim, group, column / kLineColumns);
    return LaidOutColumns<V>{run + column % kRunColumns * V::kWidth};
  } else if constexpr (OfNumbers(kSource)) {
    NumberLines<V, C> lines{{}, tile.value_dim};
    for (int c = 0; c < C; ++c)
      lines.at[c] = Numbers(tile.source->v[group]) + (column + c) * V::kWidth;
    return lines;
  } else {
    PageLines<V, C> lines{{}, 2 * tile.value_dim};
    for (int c = 0; c < C; ++c) lines.at[c] = tile.v[group] + (column + c) * V::kWidth * 2;
    return lines;
  }
}

// Lays out both chains' parts of one step of sixteen lanes.
template <class V, class Lines>
inline void LayOutStep(const Lines& lines, float* to) {
  for (int c = 0; c < kLanes / V::kWidth; ++c) {
    V::Store(to + c * V::kWidth, lines.template Load<kEven>(c));
    V::Store(to + kChainFloats<V> + c * V::kWidth, lines.template Load<kOdd>(c));
  }
}

template <class V, LineSource kSource>
void LayOutKeys(const KeyTile& tile) {
  constexpr int kLineColumns = kLanes / V::kWidth;
  for (int j = 0; j < tile.all_groups; ++j)
    for (int k = 0; k < tile.key_dim; k += kGroupKeys) {
      auto lines = KeyLines<V, kSource, kLineColumns>(tile, k, j * kLineColumns);
      float* to = tile.k_laid_out + KeyRun<V>(k, j) + j % kRunLines * kLanes;
#pragma GCC unroll 4
      for (int step = 0; step < kChainSteps<V> / 2; ++step, to += kRunLines * kLanes) {
        LayOutStep<V>(lines, to);
        lines.Next();
      }
    }
}

template <class V, LineSource kSource>
void LayOutValues(const KeyTile& tile) {
  constexpr int kLineColumns = kLanes / V::kWidth;
  for (int j = 0; j < tile.all_groups; ++j) {
    for (int step = 0; step < kChainSteps<V> / 2; ++step) {
#pragma GCC unroll 4
      for (int d = 0; d < tile.value_dim; d += kLanes) {
        auto lines = ValueLines<V, kSource, kLineColumns>(tile, j, d / V::kWidth);
        lines.Skip(step);
        LayOutStep<V>(lines, tile.v_laid_out + ValueRun<V>(tile.value_dim, j, d / kLanes) +
                                 (step * kRunLines + d / kLanes % kRunLines) * kLanes);
      }
    }
  }
}

}  // namespace
}  // namespace baton
