// Tile order (engine reference 5.5) by vector instructions: rows x columns of one chain at a time
// in registers, even first, then odd; one accumulator per output in L1, touched once per 32-k
// group. K lines are sixteen keys x one pair of dims, V lines sixteen dims x one pair of keys, so S
// and P V are the same loop. For kernel units.
//
// V is the path's vector (attention_fma.h, attention_pairs.h):
//   V::Float, V::kWidth lanes, V::Zero, Load, Store, Add, Dot(word, b, chain)
//   V::Word: what is broadcast over the lanes, V::kWords of them per 32 k of a row, even and odd in
//     turn
//   V::kStepLines lines make one step of a chain: V::LoadStep<chain>(line, line_stride)
//   V::kMaxRows, V::Columns(rows): the register tile
//   V::kPrefetch: whether fresh tiles are worth prefetching
//   V::PackQuery(q, head_dim, words), V::StoreWeights(lanes, words): bf16 -> words
#pragma once

#include "engine/cpu/attention_softmax.h"

namespace baton {
namespace {

inline constexpr int kLineElements = 2 * kLanes;
inline constexpr int kGroupLines = kGroupKeys / 2;  // V lines of a group per sixteen dims

enum { kEven = 0, kOdd = 1 };

// One chain of R rows x C columns through one 32-k group.
template <class V, int R, int C>
struct Chain {
  typename V::Float sum[R][C];

  void Clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = V::Zero();
  }
  // words: those of row 0, rows `stride` apart; the lines of column c begin at lines[c].
  template <int chain>
  void Step(const typename V::Word* words, int64_t stride, const bf16* const (&lines)[C],
            int64_t line_stride) {
    typename V::Float b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = V::template LoadStep<chain>(lines[c], line_stride);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const typename V::Float a = V::Broadcast(words[r * stride + chain]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = V::Dot(a, b[c], sum[r][c]);
    }
  }
  void StoreTo(float* even) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) V::Store(even + (r * C + c) * V::kWidth, sum[r][c]);
  }
  // acc (R, C vectors) continues: acc + (even + odd), from +0 when `first`; this is the odd chain.
  void AddTo(const float* even, float* acc, int64_t acc_stride, bool first) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        float* const to = acc + r * acc_stride + c * V::kWidth;
        const typename V::Float both = V::Add(V::Load(even + (r * C + c) * V::kWidth), sum[r][c]);
        V::Store(to, V::Add(first ? V::Zero() : V::Load(to), both));
      }
  }
};

template <class V>
struct ChainDot {
  using Word = typename V::Word;
  static constexpr int kMaxRows = V::kMaxRows;
  static constexpr bool kPrefetch = V::kPrefetch;
  static constexpr int kLineColumns = kLanes / V::kWidth;        // vectors of a line
  static constexpr int kTileWords = kTileKeys / 32 * V::kWords;  // of a row of P
  static constexpr int kGroupWords = kTileWords / kTileGroups;
  struct Scratch {
    alignas(64) float s[kMaxRows][kTileKeys];
    alignas(64) Word p[kMaxRows][kTileWords];
  };

  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    V::PackQuery(q, head_dim, static_cast<Word*>(packed));
  }
  static void Scores(const TileRows& rows, const KeyTile& tile, Scratch* scratch) {
    kTable.score[Ahead(tile)][rows.n](static_cast<const Word*>(rows.q), tile, scratch->s[0]);
  }
  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    V::StoreWeights(p, scratch->p[row] + group * kGroupWords);
  }
  static void AddValues(Scratch* scratch, int n, const KeyTile& tile, float* out) {
    kTable.value[Ahead(tile)][n](scratch->p[0], tile, out);
  }

 private:
  static bool Ahead(const KeyTile& tile) {
    return kPrefetch && tile.fresh && tile.source == nullptr;
  }

  // S of R rows x C columns, the first of which is `column` (in vectors from the start of the
  // tile).
  template <bool kAhead, int R, int C>
  static void ScoreColumns(const Word* q, const KeyTile& tile, int column, float* s) {
    alignas(64) float even[R * C * V::kWidth];
    for (int k = 0; k < tile.key_dim; k += 32, q += V::kWords) {
      const auto run = [&]<int chain>(Chain<V, R, C>* sums) {
        const bf16* lines[C];
        for (int c = 0; c < C; ++c)
          lines[c] = tile.k[(column + c) / kLineColumns] + k * kLanes +
                     (column + c) % kLineColumns * V::kWidth * 2;
        sums->Clear();
        for (int w = 0; w < V::kWords; w += 2) {
          sums->template Step<chain>(q + w, kRowStride, lines, kLineElements);
          for (int c = 0; c < C; ++c) {
            lines[c] += V::kStepLines * kLineElements;
            if (kAhead && chain == kEven)
              Prefetch(tile.v[(column + c) / kLineColumns] + (k + w) * kLanes);
          }
        }
      };
      Chain<V, R, C> sums;
      run.template operator()<kEven>(&sums);
      sums.StoreTo(even);
      run.template operator()<kOdd>(&sums);
      sums.AddTo(even, s + column * V::kWidth, kTileKeys, k == 0);
    }
  }

  // Adds P V of one 32-key group (n_halves groups of 16, from `group`) to R rows x C columns of
  // out.
  template <bool kAhead, int R, int C>
  static void ValueColumns(const Word* p, const KeyTile& tile, int group, int n_halves, int column,
                           float* out) {
    const int value_dim = tile.value_dim;
    alignas(64) float even[R * C * V::kWidth];
    const auto run = [&]<int chain>(Chain<V, R, C>* sums) {
      sums->Clear();
      for (int half = group; half < group + n_halves; ++half) {
        const bf16* lines[C];
        for (int c = 0; c < C; ++c) lines[c] = tile.v[half] + (column + c) * V::kWidth * 2;
        const Word* words = p + half * kGroupWords;
        for (int i = 0; i < kGroupLines; i += V::kStepLines, words += 2) {
          sums->template Step<chain>(words, kTileWords, lines, 2 * value_dim);
          for (int c = 0; c < C; ++c) {
            lines[c] += V::kStepLines * 2 * value_dim;
            const int line = (column + c) / kLineColumns * kGroupLines + i;
            if (kAhead && chain == kEven) Prefetch(tile.next_k[half] + line * kLineElements);
          }
        }
      }
    };
    Chain<V, R, C> sums;
    run.template operator()<kEven>(&sums);
    sums.StoreTo(even);
    run.template operator()<kOdd>(&sums);
    sums.AddTo(even, out + column * V::kWidth, kRowStride, false);
  }

  // Calls columns<C>(first) for runs of C = kColumns, then 2, then 1 columns that cover [0, n).
  template <int kColumns, typename Columns>
  static void InRuns(int n, const Columns& columns) {
    int at = 0;
    for (; at + kColumns <= n; at += kColumns) columns.template operator()<kColumns>(at);
    if constexpr (kColumns > 2)
      for (; at + 2 <= n; at += 2) columns.template operator()<2>(at);
    for (; at < n; ++at) columns.template operator()<1>(at);
  }

  template <bool kAhead, int R>
  static void ScoreRows(const Word* q, const KeyTile& tile, float* s) {
    InRuns<V::Columns(R)>(tile.n_groups * kLineColumns, [&]<int C>(int column) {
      ScoreColumns<kAhead, R, C>(q, tile, column, s);
    });
  }

  template <bool kAhead, int R>
  static void ValueRows(const Word* p, const KeyTile& tile, float* out) {
    for (int group = 0; group < tile.n_groups; group += 2) {
      const int n_halves = tile.n_groups - group < 2 ? 1 : 2;
      InRuns<V::Columns(R)>(tile.value_dim / V::kWidth, [&]<int C>(int column) {
        ValueColumns<kAhead, R, C>(p, tile, group, n_halves, column, out);
      });
    }
  }

  static void Prefetch(const bf16* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }

  // The row count is a template argument of the loops: one entry for each, without and with
  // prefetch.
  using Loop = void (*)(const Word*, const KeyTile&, float*);
  struct Table {
    Loop score[2][kMaxRows + 1] = {}, value[2][kMaxRows + 1] = {};
  };
  template <int R>
  static constexpr void Fill(Table* table) {
    table->score[0][R] = ScoreRows<false, R>;
    table->value[0][R] = ValueRows<false, R>;
    table->score[1][R] = ScoreRows<V::kPrefetch, R>;
    table->value[1][R] = ValueRows<V::kPrefetch, R>;
    if constexpr (R > 1) Fill<R - 1>(table);
  }
  static constexpr Table MakeTable() {
    Table table;
    Fill<kMaxRows>(&table);
    return table;
  }
  static constexpr Table kTable = MakeTable();
};

}  // namespace
}  // namespace baton
