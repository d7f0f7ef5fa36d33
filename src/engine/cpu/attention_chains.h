// Tile order (engine reference 5.5) by vector instructions: rows x columns of one chain at a time
// in registers, even first, then odd, or of both where V says so; one accumulator per output in L1,
// touched once per 32-k group. K lines are sixteen keys x one pair of dims, V lines sixteen dims x
// one pair of keys, so S and P V are the same loop. For kernel units.
//
// Many rows read a tile laid out (attention_lines.h).
//
// V is the path's vector (attention_fma.h, attention_pairs.h):
//   V::Float, V::kWidth lanes, V::Zero, Load, Store, Add, Dot(word, b, chain)
//   V::Word: what is broadcast over the lanes, V::kWords of them per 32 k of a row, even and odd in
//     turn
//   V::kStepLines lines make one step of a chain: V::LoadStep<chain>(line, line_stride)
//   V::kTileRows, V::Columns(rows): the register tile
//   V::kBothChains: its registers hold both chains (gemm_vector.h says what that is good for)
//   V::kLaysOut: whether tiles are worth laying out for many rows
//   V::kPrefetch: whether fresh tiles are worth prefetching
//   V::PackQuery(q, head_dim, words), V::StoreWeights(lanes, words): bf16 -> words
#pragma once

#include "engine/cpu/attention_lines.h"
#include "engine/cpu/attention_softmax.h"

namespace baton {
namespace {

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
  // word: of row 0, those of the others `stride` apart.
  template <int chain, class Lines>
  void Step(const typename V::Word* word, int64_t stride, const Lines& lines) {
    typename V::Float b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = lines.template Load<chain>(c);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const typename V::Float a = V::Broadcast(word + r * stride + chain);
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
  template <class EvenAt>
  void AddTo(const EvenAt& even_at, float* acc, int64_t acc_stride, bool first) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        float* const to = acc + r * acc_stride + c * V::kWidth;
        const typename V::Float both = V::Add(even_at(r, c), sum[r][c]);
        V::Store(to, V::Add(first ? V::Zero() : V::Load(to), both));
      }
  }
};

template <class V>
struct ChainDot {
  using Word = typename V::Word;
  static constexpr int kMaxRows = 48, kEdgeRows = 12;
  static constexpr bool kPrefetch = V::kPrefetch;
  // Floats per dim of a laid out tile; 0: none is.
  static constexpr int kLaidOutFloats = V::kLaysOut ? kTileGroups * kChainSteps<V> : 0;
  struct Scratch {
    alignas(64) float s[kMaxRows][kTileKeys];  // S, and in its place P as words
  };

  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    V::PackQuery(q, head_dim, static_cast<Word*>(packed));
  }
  static void Scores(const TileRows& rows, const KeyTile& tile, Scratch* scratch) {
    if (IsLaidOut(tile) && tile.fresh) LayOutKeys<V>(tile);
    const Word* const q = static_cast<const Word*>(rows.q);
    InRowTiles(rows.n, [&](int row, int n, int n_tiles) {
      kTable.score[SourceOf(tile)][n](q + int64_t{row} * kRowStride, tile, n_tiles,
                                      scratch->s[row]);
    });
  }
  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    V::StoreWeights(p, Weights(scratch, row) + group * kGroupWords);
  }
  static void AddValues(Scratch* scratch, int n_rows, const KeyTile& tile, float* out) {
    if (IsLaidOut(tile) && tile.fresh) LayOutValues<V>(tile);
    InRowTiles(n_rows, [&](int row, int n, int n_tiles) {
      kTable.value[SourceOf(tile)][n](Weights(scratch, row), tile, n_tiles,
                                      out + int64_t{row} * kRowStride);
    });
  }

 private:
  static constexpr int kLineColumns = kLanes / V::kWidth;          // vectors of a line
  static constexpr int kRunColumns = kRunLines * kLineColumns;     // and of a run of laid out ones
  static constexpr int kGroupWords = V::kWords * kGroupKeys / 32;  // of a row of P

  static Word* Weights(Scratch* scratch, int row) {
    static_assert(sizeof(Word) == sizeof(float));
    return static_cast<Word*>(static_cast<void*>(scratch->s[row]));
  }

  // How the lines of a tile are read. Ahead: with prefetch of what comes next from memory.
  enum Source { kPages, kPagesAhead, kLaidOut, kLaidOutAhead, kSources };
  static constexpr bool InPages(Source source) { return source <= kPagesAhead; }
  enum Chains { kOnlyEven, kOnlyOdd, kBoth };
  static bool IsLaidOut(const KeyTile& tile) {
    return kLaidOutFloats > 0 && tile.k_laid_out != nullptr;
  }
  static Source SourceOf(const KeyTile& tile) {
    const bool ahead = kPrefetch && tile.fresh && tile.source == nullptr;
    if (IsLaidOut(tile)) return ahead ? kLaidOutAhead : kLaidOut;
    return ahead ? kPagesAhead : kPages;
  }

  // Register tiles as even as can be: tiles(first row, rows of each, number), at most twice.
  template <typename Tiles>
  static void InRowTiles(int n, const Tiles& tiles) {
    const int n_tiles = (n + V::kTileRows - 1) / V::kTileRows;
    const int rows = n / n_tiles, larger = n % n_tiles;
    if (larger > 0) tiles(0, rows + 1, larger);
    tiles(larger * (rows + 1), rows, n_tiles - larger);
  }

  // The lines of C columns from `column` on (in vectors): of keys from the start of the tile, their
  // dims from k on; of the dims of values, whose keys are those of `group` and on.
  template <Source kSource, int C>
  static auto KeyLines(const KeyTile& tile, int k, int column) {
    if constexpr (!InPages(kSource)) {
      return LaidOut(tile.k_laid_out + KeyRun<V>(k, column / kLineColumns), column);
    } else {
      PageLines<V, C> lines{{}, kLineElements};
      for (int c = 0; c < C; ++c)
        lines.at[c] = tile.k[(column + c) / kLineColumns] + k * kLanes +
                      (column + c) % kLineColumns * V::kWidth * 2;
      return lines;
    }
  }
  template <Source kSource, int C>
  static auto ValueLines(const KeyTile& tile, int group, int column) {
    if constexpr (!InPages(kSource)) {
      const int64_t run = ValueRun<V>(tile.value_dim, group, column / kLineColumns);
      return LaidOut(tile.v_laid_out + run, column);
    } else {
      PageLines<V, C> lines{{}, 2 * tile.value_dim};
      for (int c = 0; c < C; ++c) lines.at[c] = tile.v[group] + (column + c) * V::kWidth * 2;
      return lines;
    }
  }
  static LaidOutColumns<V> LaidOut(const float* run, int column) {
    return {{run + column % kRunColumns * V::kWidth}};
  }

  // A step of the even chain, the odd one or both; words: of row 0, those of the others `stride`
  // apart.
  template <Chains kChains, int R, int C, class Lines>
  static inline __attribute__((always_inline)) void Step(Chain<V, R, C>* even, Chain<V, R, C>* odd,
                                                         const Word* words, int64_t stride,
                                                         const Lines& lines) {
    if constexpr (kChains != kOnlyOdd) even->template Step<kEven>(words, stride, lines);
    if constexpr (kChains != kOnlyEven) odd->template Step<kOdd>(words, stride, lines);
  }

  // S of R rows x C columns.
  template <Source kSource, int R, int C>
  static void ScoreColumns(const Word* q, const KeyTile& tile, int column, float* s) {
    for (int k = 0; k < tile.key_dim; k += 32, q += V::kWords) {
      const auto run = [&]<Chains kChains>(Chain<V, R, C>* even, Chain<V, R, C>* odd) {
        auto lines = KeyLines<kSource, C>(tile, k, column);
        for (int w = 0; w < V::kWords; w += 2) {
          Step<kChains>(even, odd, q + w, kRowStride, lines);
          lines.Next();
          if (kChains == kOnlyOdd) continue;
          for (int c = 0; c < C; ++c) {
            const int group = (column + c) / kLineColumns, at = (k + w) * kLanes;
            if (kSource == kPagesAhead) PrefetchLine(tile.v[group] + at);
            if (kSource == kLaidOutAhead) PrefetchToL2(tile.next_k[group] + at);
          }
        }
      };
      AddChains<R, C>(run, s + column * V::kWidth, kTileKeys, k == 0);
    }
  }

  // Adds P V of one 32-key group (n_halves groups of 16, from `group`) to R rows x C columns of
  // out.
  template <Source kSource, int R, int C>
  static void ValueColumns(const Word* p, const KeyTile& tile, int group, int n_halves, int column,
                           float* out) {
    const auto run = [&]<Chains kChains>(Chain<V, R, C>* even, Chain<V, R, C>* odd) {
      const Word* words = p + group * kGroupWords;
      if constexpr (!InPages(kSource)) {  // both halves lie in a row
        auto lines = ValueLines<kSource, C>(tile, group, column);
        const Word* const end = words + n_halves * kGroupWords;
        const bf16* ahead = nullptr;
        if (kSource == kLaidOutAhead)
          ahead = tile.next_v[group] + column * 2 * kGroupKeys * V::kWidth;
        for (; words < end; words += 2, lines.Next()) {
          Step<kChains>(even, odd, words, kTileKeys, lines);
          if (kSource != kLaidOutAhead || kChains == kOnlyOdd) continue;
          for (int c = 0; c < C; ++c, ahead += kLineElements) PrefetchToL2(ahead);
        }
        return;
      }
      for (int half = group; half < group + n_halves; ++half) {
        auto lines = ValueLines<kSource, C>(tile, half, column);
        for (int i = 0; i < kGroupLines; i += V::kStepLines, words += 2, lines.Next()) {
          Step<kChains>(even, odd, words, kTileKeys, lines);
          if (kSource != kPagesAhead || kChains == kOnlyOdd) continue;
          for (int c = 0; c < C; ++c) {
            const int line = (column + c) / kLineColumns * kGroupLines + i;
            PrefetchLine(tile.next_k[half] + line * kLineElements);
          }
        }
      }
    };
    AddChains<R, C>(run, out + column * V::kWidth, kRowStride, false);
  }

  // acc = or += what run<chains>(even, odd) adds to the sums of those chains.
  template <int R, int C, typename Run>
  static inline __attribute__((always_inline)) void AddChains(const Run& run, float* acc,
                                                              int64_t acc_stride, bool first) {
    Chain<V, R, C> even, odd;
    even.Clear();
    if constexpr (V::kBothChains) {
      odd.Clear();
      run.template operator()<kBoth>(&even, &odd);
      odd.AddTo([&](int r, int c) { return even.sum[r][c]; }, acc, acc_stride, first);
    } else {
      alignas(64) float waiting[R * C * V::kWidth];
      run.template operator()<kOnlyEven>(&even, nullptr);
      even.StoreTo(waiting);
      // The compiler would keep them in registers that the other chain needs.
      __asm__ volatile("" : : "r"(waiting) : "memory");
      odd.Clear();
      run.template operator()<kOnlyOdd>(nullptr, &odd);
      odd.AddTo([&](int r, int c) { return V::Load(waiting + (r * C + c) * V::kWidth); }, acc,
                acc_stride, first);
    }
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

  // Of n_tiles register tiles of R rows: those lines that one has read, the next finds in L1.
  template <Source kSource, int R>
  static void ScoreRows(const Word* q, const KeyTile& tile, int n_tiles, float* s) {
    InRuns<Columns<kSource>(R)>(tile.n_groups * kLineColumns, [&]<int C>(int column) {
      ScoreColumns<kSource, R, C>(q, tile, column, s);
      for (int i = R; i < n_tiles * R; i += R)
        ScoreColumns<After(kSource), R, C>(q + i * kRowStride, tile, column, s + i * kTileKeys);
    });
  }
  template <Source kSource, int R>
  static void ValueRows(const Word* p, const KeyTile& tile, int n_tiles, float* out) {
    for (int group = 0; group < tile.n_groups; group += 2) {
      const int n_halves = tile.n_groups - group < 2 ? 1 : 2;
      InRuns<Columns<kSource>(R)>(tile.value_dim / V::kWidth, [&]<int C>(int column) {
        ValueColumns<kSource, R, C>(p, tile, group, n_halves, column, out);
        for (int i = R; i < n_tiles * R; i += R)
          ValueColumns<After(kSource), R, C>(p + i * kTileKeys, tile, group, n_halves, column,
                                             out + i * kRowStride);
      });
    }
  }
  template <Source kSource>
  static constexpr int Columns(int rows) {
    const int columns = V::Columns(rows);
    return !InPages(kSource) && columns > kRunColumns ? kRunColumns : columns;
  }
  static constexpr Source After(Source first) { return InPages(first) ? kPages : kLaidOut; }

  // The row count is a template argument of the loops: one entry for each, by source.
  using Loop = void (*)(const Word*, const KeyTile&, int, float*);
  struct Table {
    Loop score[kSources][V::kTileRows + 1] = {}, value[kSources][V::kTileRows + 1] = {};
  };
  template <int R>
  static constexpr void Fill(Table* table) {
    FillSource<kPages, R>(table);
    if constexpr (V::kPrefetch) FillSource<kPagesAhead, R>(table);
    if constexpr (V::kLaysOut) FillSource<kLaidOut, R>(table);
    if constexpr (V::kLaysOut && V::kPrefetch) FillSource<kLaidOutAhead, R>(table);
    if constexpr (R > 1) Fill<R - 1>(table);
  }
  template <Source kSource, int R>
  static constexpr void FillSource(Table* table) {
    table->score[kSource][R] = ScoreRows<kSource, R>;
    table->value[kSource][R] = ValueRows<kSource, R>;
  }
  static constexpr Table MakeTable() {
    Table table;
    Fill<V::kTileRows>(&table);
    return table;
  }
  static constexpr Table kTable = MakeTable();
};

}  // namespace
}  // namespace baton
