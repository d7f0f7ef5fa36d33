// The tile order of numerics v1 (linear.h) by vector instructions: rows x columns of both chains in
// registers (attention_two_accumulators.h), or of one chain at a time
// (attention_one_accumulator.h); one accumulator per output in L1, touched once per 32-k group. K
// lines are sixteen keys x one pair of dims, V lines sixteen dims x one pair of keys, so S and P V
// are the same loop. For kernel units.
//
// Tiles that many rows read are laid out first (attention_operands.h).
//
// V is the path's vector (attention_fma.h, attention_pairs.h):
//   V::Float, V::kWidth lanes, V::Zero, Load, Store, Add, Dot(word, b, chain)
//   V::Word: the unit broadcast over the lanes, V::kWords units per 32 k of a row, even and odd in
//     turn
//   V::kStepLines lines make one step of a chain: V::LoadStep<chain>(line, line_stride)
//   V::TileRows(source), V::Columns(rows, source): the register tile of lines of that form;
//     V::kMaxTileRows: the largest
//   V::BothChains(source): both chains at once; V then also has Mul(word, b) and Hold(&b), which
//     stops the compiler from making b again for every row
//   V::kReadsNumbers: chains read int8 as stored in the pages, by V::LoadNumbers<chain>(numbers,
//     stride); otherwise int8 is converted to bf16 first
//   V::kSideBySide: a step of bf16 is two vectors that hold both chains of half of the lanes each;
//     V then also has BroadcastBoth(words) and AddChains(first, second)
//   V::kLaysOut: tiles are worth laying out for many rows
//   V::kPrefetch: fresh tiles are worth prefetching
//   V::kTileAhead: with both chains, the whole next tile is prefetched evenly, not group by group
//   V::PackQuery(q, head_dim, words), V::StoreWeights(lanes, words): bf16 -> words
#pragma once

#include <type_traits>

#include "engine/cpu/attention/attention_one_accumulator.h"
#include "engine/cpu/attention/attention_softmax.h"
#include "engine/cpu/attention/attention_two_accumulators.h"

namespace baton {
namespace {

template <class V>
struct ChainDot {
  using Word = typename V::Word;
  template <LineSource kSource>
  using Loops = std::conditional_t<V::BothChains(kSource), BothChains<V>, ParkedChains<V>>;
  // Eight and two register tiles of six rows (sixteen and four of three, four and one of twelve); S
  // of 48 rows is 24 KB, and L1 has 32. Rows at the causal edge are computed up to the last key
  // that any row of the tile sees, so fewer are taken at a time. On AVX2 24 to 96 rows and 6 to 48
  // at the edge are within 3 %.
  static constexpr int kMaxRows = 48, kEdgeRows = 12;
  static constexpr bool kPrefetch = V::kPrefetch;
  // Floats per dim of a laid out tile; 0: tiles are not laid out.
  static constexpr int kLaidOutFloats = V::kLaysOut ? kTileGroups * kChainSteps<V> : 0;
  struct Scratch {
    alignas(64) float s[kMaxRows][kTileKeys];  // S, later replaced by P as words
    TileAhead ahead;
  };

  // True if the chains read the tile's source directly. Values that lie in keys are made from keys,
  // so the keys must be made as well; for many rows it pays to widen numbers once for all of them,
  // here or where the tile is laid out.
  static bool Reads(const KeyTile& tile) {
    if (!V::kReadsNumbers || (tile.meets_many_rows && !IsLaidOut(tile))) return false;
    return tile.source->is_int8 && tile.source->v[0] != nullptr;
  }
  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    V::PackQuery(q, head_dim, static_cast<Word*>(packed));
  }
  // Prepares the prefetches while n rows attend the tile; only the tile's first rows prefetch.
  static void Begin(const KeyTile& tile, int n, Scratch* scratch) {
    scratch->ahead.Clear();
    if (!V::kTileAhead || !IsAhead(SourceOf(tile))) return;
    const int64_t k_bytes = GroupBytes(tile, tile.key_dim);
    const int64_t v_bytes = GroupBytes(tile, tile.value_dim);
    if (tile.source != nullptr)
      scratch->ahead.Begin(n, tile.source->next_k, k_bytes, tile.source->next_v, v_bytes);
    else
      scratch->ahead.Begin(n, tile.next_k, k_bytes, tile.next_v, v_bytes);
  }
  // Called beside the softmax of a row, four times per row.
  static void BesideSoftmax(Scratch* scratch) { scratch->ahead.BesideSoftmax(); }

  static void Scores(const TileRows& rows, const KeyTile& tile, Scratch* scratch) {
    if (IsLaidOut(tile) && tile.fresh)
      WithLines(tile, [&]<LineSource kSource> { LayOutKeys<V, kSource>(tile); });
    const Word* const q = static_cast<const Word*>(rows.q);
    InRowTiles(rows.n, V::TileRows(SourceOf(tile)), [&](int row, int n, int n_tiles) {
      kTable.score[SourceOf(tile)][n](q + int64_t{row} * kRowStride, tile, n_tiles, &scratch->ahead,
                                      scratch->s[row]);
    });
  }
  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    V::StoreWeights(p, Weights(scratch, row) + group * kGroupWords);
  }
  static void AddValues(Scratch* scratch, int n_rows, const KeyTile& tile, float* out) {
    if (IsLaidOut(tile) && tile.fresh)
      WithLines(tile, [&]<LineSource kSource> { LayOutValues<V, kSource>(tile); });
    InRowTiles(n_rows, V::TileRows(SourceOf(tile)), [&](int row, int n, int n_tiles) {
      kTable.value[SourceOf(tile)][n](Weights(scratch, row), tile, n_tiles, &scratch->ahead,
                                      out + int64_t{row} * kRowStride);
    });
  }

 private:
  static constexpr int kLineColumns = kLanes / V::kWidth;  // vectors of a line
  // Vectors of a run of laid out lines.
  static constexpr int kRunColumns = kRunLines * kLineColumns;
  static constexpr int kGroupWords = V::kWords * kGroupKeys / 32;  // words of a row of P per group

  static Word* Weights(Scratch* scratch, int row) {
    static_assert(sizeof(Word) == sizeof(float));
    return static_cast<Word*>(static_cast<void*>(scratch->s[row]));
  }

  static bool IsLaidOut(const KeyTile& tile) {
    return kLaidOutFloats > 0 && tile.k_laid_out != nullptr;
  }
  static bool IsOfNumbers(const KeyTile& tile) { return tile.source != nullptr && Reads(tile); }
  static LineSource SourceOf(const KeyTile& tile) {
    const bool numbers = IsOfNumbers(tile);
    const bool ahead = kPrefetch && tile.fresh && (tile.source == nullptr || numbers);
    if (IsLaidOut(tile)) return ahead ? kLaidOutAhead : kLaidOut;
    if (numbers) return ahead ? kNumbersAhead : kNumbers;
    return ahead ? kPagesAhead : kPages;
  }
  // Calls lay_out<source> with the form of the tile in the pages.
  template <typename LayOut>
  static void WithLines(const KeyTile& tile, const LayOut& lay_out) {
    if constexpr (V::kReadsNumbers) {
      if (IsOfNumbers(tile)) return lay_out.template operator()<kNumbers>();
    }
    lay_out.template operator()<kPages>();
  }

  // Cuts n rows into register tiles as evenly as possible: calls tiles(first row, rows of each,
  // number), at most twice.
  template <typename Tiles>
  static void InRowTiles(int n, int max_rows, const Tiles& tiles) {
    const int n_tiles = (n + max_rows - 1) / max_rows;
    const int rows = n / n_tiles, larger = n % n_tiles;
    if (larger > 0) tiles(0, rows + 1, larger);
    tiles(larger * (rows + 1), rows, n_tiles - larger);
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

  // Scores of n_tiles register tiles of R rows: a tile finds the lines in L1 that the previous one
  // read.
  template <LineSource kSource, int R>
  static void ScoreRows(const Word* q, const KeyTile& tile, int n_tiles, TileAhead* ahead,
                        float* s) {
    auto&& first = AheadOfScores<kSource>(tile, ahead);
    NoneAhead none;
    InRuns<V::Columns(R, kSource)>(tile.n_groups * kLineColumns, [&]<int C>(int column) {
      Loops<kSource>::template Scores<kSource, R, C>(q, tile, column, &first, s);
      for (int i = R; i < n_tiles * R; i += R)
        Loops<kSource>::template Scores<WithoutAhead(kSource), R, C>(
            q + i * kRowStride, tile, column, &none, s + i * kTileKeys);
    });
  }
  template <LineSource kSource, int R>
  static void ValueRows(const Word* p, const KeyTile& tile, int n_tiles, TileAhead* ahead,
                        float* out) {
    auto&& first = AheadOfValues<kSource>(tile, ahead);
    [[maybe_unused]] NoneAhead none;
    for (int group = 0; group < tile.n_groups; group += 2) {
      const int n_halves = tile.n_groups - group < 2 ? 1 : 2;
      InRuns<V::Columns(R, kSource)>(tile.value_dim / V::kWidth, [&]<int C>(int column) {
        Loops<kSource>::template AddValues<kSource, R, C>(p, tile, group, n_halves, column, &first,
                                                          out);
        // Laid out, all other tiles are taken in one call: a call for each costs 4 to 8 % of the
        // attention of many rows on AVX2. In the pages the compiler would then keep the places of
        // all lines in memory (AVX2, 4 rows: 3 to 10 % slower).
        if constexpr (InPages(kSource)) {
          for (int i = R; i < n_tiles * R; i += R)
            Loops<kSource>::template AddValues<WithoutAhead(kSource), R, C>(
                p + i * kTileKeys, tile, group, n_halves, column, &none, out + i * kRowStride);
        } else if (n_tiles > 1) {
          Loops<kSource>::template AddValuesToTiles<WithoutAhead(kSource), R, C>(
              p + R * kTileKeys, tile, group, n_halves, column, n_tiles - 1, out + R * kRowStride);
        }
      });
    }
  }
  // The first register tile prefetches: the next tile, or group by group this tile's values and
  // then the next tile's keys; for a laid out tile, both of the next tile.
  template <LineSource kSource>
  static decltype(auto) AheadOfScores(const KeyTile& tile, TileAhead* ahead) {
    if constexpr (!Loops<kSource>::kTakesAhead || !IsAhead(kSource))
      return NoneAhead();
    else if constexpr (V::kTileAhead)
      return (*ahead);
    else
      return InPages(kSource) ? ValuesAhead<kSource>(tile) : NextKeys<kSource>(tile);
  }
  template <LineSource kSource>
  static decltype(auto) AheadOfValues(const KeyTile& tile, TileAhead* ahead) {
    if constexpr (!Loops<kSource>::kTakesAhead || !IsAhead(kSource))
      return NoneAhead();
    else if constexpr (V::kTileAhead)
      return (*ahead);
    else
      return InPages(kSource) ? NextKeys<kSource>(tile) : ValuesAhead<kSource>(tile);
  }
  template <LineSource kSource>
  static GroupsAhead<kSource> NextKeys(const KeyTile& tile) {
    const int64_t bytes = GroupBytes(tile, tile.key_dim);
    return tile.source != nullptr ? GroupsAhead<kSource>(tile.source->next_k, bytes)
                                  : GroupsAhead<kSource>(tile.next_k, bytes);
  }
  template <LineSource kSource>
  static GroupsAhead<kSource> ValuesAhead(const KeyTile& tile) {
    const int64_t bytes = GroupBytes(tile, tile.value_dim);
    const TileSource* const source = tile.source;
    if (source != nullptr)
      return GroupsAhead<kSource>(InPages(kSource) ? source->v : source->next_v, bytes);
    return GroupsAhead<kSource>(InPages(kSource) ? tile.v : tile.next_v, bytes);
  }
  static int64_t GroupBytes(const KeyTile& tile, int width) {
    const int64_t elements = int64_t{kGroupKeys} * width;
    return tile.source != nullptr ? kInt8ScaleBytes + elements : 2 * elements;
  }
  // The row count is a template argument of the loops: one entry per row count and source.
  using Loop = void (*)(const Word*, const KeyTile&, int, TileAhead*, float*);
  struct Table {
    Loop score[kSources][V::kMaxTileRows + 1] = {}, value[kSources][V::kMaxTileRows + 1] = {};
  };
  template <int R>
  static constexpr void Fill(Table* table) {
    FillSource<kPages, R>(table);
    if constexpr (V::kPrefetch) FillSource<kPagesAhead, R>(table);
    if constexpr (V::kReadsNumbers) FillSource<kNumbers, R>(table);
    if constexpr (V::kReadsNumbers && V::kPrefetch) FillSource<kNumbersAhead, R>(table);
    if constexpr (V::kLaysOut) FillSource<kLaidOut, R>(table);
    if constexpr (V::kLaysOut && V::kPrefetch) FillSource<kLaidOutAhead, R>(table);
    if constexpr (R > 1) Fill<R - 1>(table);
  }
  template <LineSource kSource, int R>
  static constexpr void FillSource(Table* table) {
    if constexpr (R <= V::TileRows(kSource)) {
      static_assert(InPages(kSource) || V::Columns(R, kSource) <= kRunColumns);
      table->score[kSource][R] = ScoreRows<kSource, R>;
      table->value[kSource][R] = ValueRows<kSource, R>;
    }
  }
  static constexpr Table MakeTable() {
    Table table;
    Fill<V::kMaxTileRows>(&table);
    return table;
  }
  static constexpr Table kTable = MakeTable();
};

}  // namespace
}  // namespace baton
