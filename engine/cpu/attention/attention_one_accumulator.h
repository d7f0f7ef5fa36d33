// One chain of R rows x C columns at a time in registers, first even, then odd; the sums of the
// even chain wait in L1. Register tiles are as large as possible, and lines are read twice: for
// tiles that are laid out. Dims beyond the last are skipped, as in attention_two_accumulators.h. V
// is the path's vector (attention_chains.h). For kernel units.
#pragma once

#include "engine/cpu/attention/attention_operands.h"

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
  // word: word of row 0; the words of other rows are `stride` apart.
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
  // acc (R, C vectors) = acc + (even + odd), from +0 when `first`; this object is the odd chain.
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
struct ParkedChains {
  using Word = typename V::Word;
  static constexpr bool kTakesAhead = false;  // prefetches by itself instead, step by step

  // S of R rows x C columns.
  template <LineSource kSource, int R, int C, class Ahead>
  static void Scores(const Word* q, const KeyTile& tile, int column, Ahead* /*ahead*/, float* s) {
    static_assert(!InPages(kSource));
    for (int k = 0; k < tile.key_dim; k += 32, q += V::kWords) {
      const auto run = [&]<int chain>(Chain<V, R, C>* sums) {
        auto lines = KeyLines<V, kSource, C>(tile, k, column);
        const int n_words = tile.key_dim - k < 32 ? V::kWords / 2 : V::kWords;
        for (int w = 0; w < n_words; w += 2) {
          sums->template Step<chain>(q + w, kRowStride, lines);
          lines.Next();
          if (kSource != kLaidOutAhead || chain == kOdd) continue;
          for (int c = 0; c < C; ++c)
            PrefetchToL2(NextKeyGroup(tile, (column + c) / kLineColumns) +
                         (k + w) * kLanes * ElementBytes(tile));
        }
      };
      AddChains<R, C>(run, s + column * V::kWidth, kTileKeys, k == 0);
    }
  }

  // Adds P V of one 32-key group (n_halves groups of 16, from `group`) to R rows x C columns of
  // out.
  template <LineSource kSource, int R, int C, class Ahead>
  static void AddValues(const Word* p, const KeyTile& tile, int group, int n_halves, int column,
                        Ahead* /*ahead*/, float* out) {
    constexpr int kGroupWords = V::kWords * kGroupKeys / 32;
    const auto run = [&]<int chain>(Chain<V, R, C>* sums) {
      auto lines = ValueLines<V, kSource, C>(tile, group, column);
      const Word* words = p + group * kGroupWords;  // both halves lie in a row
      const Word* const end = words + n_halves * kGroupWords;
      const char* ahead = nullptr;
      if (kSource == kLaidOutAhead)
        ahead =
            NextValueGroup(tile, group) + column * 2 * kGroupKeys * V::kWidth * ElementBytes(tile);
      for (; words < end; words += 2, lines.Next()) {
        sums->template Step<chain>(words, kTileKeys, lines);
        if (kSource != kLaidOutAhead || chain == kOdd) continue;
        for (int c = 0; c < C; ++c, ahead += kLineElements * ElementBytes(tile))
          PrefetchToL2(ahead);
      }
    };
    AddChains<R, C>(run, out + column * V::kWidth, kRowStride, false);
  }

  // Adds it to n_tiles tiles of R rows.
  template <LineSource kSource, int R, int C>
  static void AddValuesToTiles(const Word* p, const KeyTile& tile, int group, int n_halves,
                               int column, int n_tiles, float* out) {
    NoneAhead none;
    for (int i = 0; i < n_tiles; ++i)
      AddValues<kSource, R, C>(p + i * R * kTileKeys, tile, group, n_halves, column, &none,
                               out + i * R * kRowStride);
  }

 private:
  static constexpr int kLineColumns = kLanes / V::kWidth;

  // acc = or += the sums of each chain that run<chain>(sums) computes.
  template <int R, int C, typename Run>
  static inline __attribute__((always_inline)) void AddChains(const Run& run, float* acc,
                                                              int64_t acc_stride, bool first) {
    Chain<V, R, C> even, odd;
    alignas(64) float waiting[R * C * V::kWidth];
    even.Clear();
    run.template operator()<kEven>(&even);
    even.StoreTo(waiting);
    // The clobber stops the compiler from keeping the values in registers that the other chain
    // needs.
    __asm__ volatile("" : : "r"(waiting) : "memory");
    odd.Clear();
    run.template operator()<kOdd>(&odd);
    odd.AddTo([&](int r, int c) { return V::Load(waiting + (r * C + c) * V::kWidth); }, acc,
              acc_stride, first);
  }
};

}  // namespace
}  // namespace baton
