// Both chains of R rows x C columns at once, all their sums in registers: lines are read once, as
// they stream from memory, and no sum waits elsewhere. V is the path's vector (attention_chains.h),
// whose words are one k and whose lines one step. For kernel units.
//
// A chain's first product is its first sum, and dims beyond the last, which are zeros, are skipped.
// Zero sums may then differ in sign from those of the tile order; no result of the attention
// depends on the sign: a row adds +0 at its end, and exponents of two do not distinguish zeros.
#pragma once

#include <type_traits>

#include "engine/cpu/attention/attention_operands.h"

namespace baton {
namespace {

template <class V>
struct BothChains {
  using Word = typename V::Word;
  using Float = typename V::Float;
  static constexpr bool kTakesAhead = true;

  // S of R rows x C columns.
  template <LineSource kSource, int R, int C, class Ahead>
  static void Scores(const Word* q, const KeyTile& tile, int column, Ahead* ahead, float* s) {
    s += column * V::kWidth;
    auto lines = KeyLines<V, kSource, C>(tile, 0, column);
    AddScores<true, R, C>(q, tile.key_dim, &lines, ahead, s);
    for (int left = tile.key_dim - 32; left > 0; left -= 32) {
      q += V::kWords;
      lines.NextGroup();
      AddScores<false, R, C>(q, left, &lines, ahead, s);
    }
  }

  // Adds P V of one 32-key group (n_halves groups of 16, from `group`) to R rows x C columns of
  // out.
  template <LineSource kSource, int R, int C, class Ahead>
  static void AddValues(const Word* p, const KeyTile& tile, int group, int n_halves, int column,
                        Ahead* ahead, float* out) {
    p += group * kHalf;
    out += column * V::kWidth;
    auto lines = ValueLines<V, kSource, C>(tile, group, column);
    auto second = ValueLines<V, kSource, C>(tile, group + n_halves - 1, column);
    if (n_halves == 2)
      AddGroup<false, true, R, C>(p, kTileKeys, &lines, &second, ahead, out, kRowStride);
    else
      AddGroup<false, false, R, C>(p, kTileKeys, &lines, &second, ahead, out, kRowStride);
  }

  // Adds it to n_tiles tiles of R rows, whose lines are found once.
  template <LineSource kSource, int R, int C>
  static void AddValuesToTiles(const Word* p, const KeyTile& tile, int group, int n_halves,
                               int column, int n_tiles, float* out) {
    p += group * kHalf;
    out += column * V::kWidth;
    const auto first = ValueLines<V, kSource, C>(tile, group, column);
    const auto last = ValueLines<V, kSource, C>(tile, group + n_halves - 1, column);
    NoneAhead none;
    for (int i = 0; i < n_tiles; ++i, p += R * kTileKeys, out += R * kRowStride) {
      auto lines = first, second = last;
      if (n_halves == 2)
        AddGroup<false, true, R, C>(p, kTileKeys, &lines, &second, &none, out, kRowStride);
      else
        AddGroup<false, false, R, C>(p, kTileKeys, &lines, &second, &none, out, kRowStride);
    }
  }

 private:
  static constexpr int kSteps = kGroupLines / V::kStepLines;  // steps of sixteen k
  static constexpr int kHalf = 2 * kSteps;

  // The operand of two vectors of sums: one chain each, or both chains side by side, each for half
  // of the lanes.
  template <int chain, bool kSideBySide>
  static Float Operand(const Word* words) {
    if constexpr (kSideBySide)
      return V::BroadcastBoth(words);
    else
      return V::Broadcast(words + chain);
  }
  template <bool kSideBySide>
  static Float SumOf(Float first, Float second) {
    if constexpr (kSideBySide)
      return V::AddChains(first, second);
    else
      return V::Add(first, second);
  }

  // Even and odd sums of one 32-k group.
  template <int R, int C>
  struct Sums {
    Float of[2][R][C];

    // Adds sixteen k, or starts with them. words: word of row 0; words of other rows are `stride`
    // apart.
    template <bool kFirst, class Lines, class Ahead>
    inline __attribute__((always_inline)) void Take(const Word* words, int64_t stride, Lines* lines,
                                                    Ahead* ahead) {
#pragma GCC unroll 8
      for (int i = 0; i < kSteps; ++i) {
        ahead->template At<C, V::kWidth, kSteps>(i, std::is_same_v<Lines, NumberLines<V, C>>);
        TakeStep<kFirst, kEven>(i, words, stride, *lines);
        TakeStep<kFirst, kOdd>(i, words, stride, *lines);
        lines->Next();
      }
    }
    template <bool kFirst, int chain, class Lines>
    inline __attribute__((always_inline)) void TakeStep(int i, const Word* words, int64_t stride,
                                                        const Lines& lines) {
      Float b[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        b[c] = lines.template Load<chain>(c);
        V::Hold(&b[c]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Float a = Operand<chain, Lines::kSideBySide>(words + r * stride + 2 * i);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          Float& sum = of[chain][r][c];
          sum = kFirst && i == 0 ? V::Mul(a, b[c]) : V::Dot(a, b[c], sum);
        }
      }
    }
    // acc (R, C vectors) = or += even + odd.
    template <bool kStarts, bool kSideBySide>
    inline __attribute__((always_inline)) void AddTo(float* acc, int64_t acc_stride) const {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          float* const to = acc + r * acc_stride + c * V::kWidth;
          const Float both = SumOf<kSideBySide>(of[kEven][r][c], of[kOdd][r][c]);
          V::Store(to, kStarts ? both : V::Add(V::Load(to), both));
        }
    }
  };

  // Scores of 32 dims, or of sixteen if no more are left.
  template <bool kStarts, int R, int C, class Lines, class Ahead>
  static inline __attribute__((always_inline)) void AddScores(const Word* q, int dims_left,
                                                              Lines* lines, Ahead* ahead,
                                                              float* s) {
    if (dims_left > kHalf)
      AddGroup<kStarts, true, R, C>(q, kRowStride, lines, lines, ahead, s, kTileKeys);
    else
      AddGroup<kStarts, false, R, C>(q, kRowStride, lines, lines, ahead, s, kTileKeys);
  }

  // One 32-k group or the first half of it: two texts, so that no sum changes its register.
  template <bool kStarts, bool kWhole, int R, int C, class Lines, class Ahead>
  static inline __attribute__((always_inline)) void AddGroup(const Word* words, int64_t stride,
                                                             Lines* lines, Lines* second,
                                                             Ahead* ahead, float* acc,
                                                             int64_t acc_stride) {
    Sums<R, C> sums;
    sums.template Take<true>(words, stride, lines, ahead);
    if constexpr (kWhole) sums.template Take<false>(words + kHalf, stride, second, ahead);
    sums.template AddTo<kStarts, Lines::kSideBySide>(acc, acc_stride);
  }
};

}  // namespace
}  // namespace baton
