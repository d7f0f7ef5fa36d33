// The parts of the attention that are no dot products, written once for every path on the sixteen
// virtual lanes; and Attend, which combines them with the chains of a path. For kernel units.
//
// Dot is the path's implementation of the tile order (attention_chains.h, attention_amx.h,
// attention_segment.h). The softmax needs
//   Dot::Scratch                    holds S of some rows as float s[][kTileKeys], and P in the
//                                   path's form
//   Dot::StoreWeights(&scratch, row, group, lanes)  P of sixteen keys, already rounded to bf16
//   Dot::BesideSoftmax(&scratch)    four times per row: what goes on beside the softmax
// and Attend also
//   Dot::kMaxRows, Dot::kEdgeRows, Dot::kLaidOutFloats      as in AttentionTileKernels
//   Dot::kPrefetch                  fresh tiles are worth prefetching
//   Dot::Begin(tile, n, &scratch)   prepares prefetches from memory
//   Dot::Reads(tile)                the path reads the tile's source directly
//   Dot::Scores(rows, tile, &scratch)     S of the tile's groups, all rows
//   Dot::AddValues(&scratch, n, tile, out)          out += P V
#pragma once

#include "engine/cpu/attention/attention_expand.h"
#include "engine/cpu/attention/attention_tile.h"
#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"
#include "engine/numerics/tanh.h"

namespace baton {
namespace {

inline constexpr float kMinusInfinity = -__builtin_inff();

// RoundBf16 of a weight times a scale, which is never NaN.
#if defined(__AVX512F__)
inline Lanes RoundScaled(Lanes x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return {
      _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
// Stores sixteen values that are already rounded to bf16, aligned to 32 bytes.
inline void StoreRounded(bf16* to, Lanes x) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                     _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x.v), 16)));
}
#else
inline __m256 RoundScaled(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_castsi256_ps(
      _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline Lanes RoundScaled(Lanes x) { return {RoundScaled(x.lo), RoundScaled(x.hi)}; }
#endif

inline void ScaleRow(float* row, int n, float by) {
  if (by == 1.0f) return;  // exact: x * 1 = x
  const Lanes factor = Splat<Lanes>(by);
  for (int d = 0; d < n; d += kLanes) Store(row + d, Mul(Load<Lanes>(row + d), factor));
}

// Groups of the tile in which the row sees a key; the last may be partly visible.
inline int VisibleGroups(int visible, int n_groups) {
  return visible >= kGroupKeys * n_groups ? n_groups
         : visible <= 0                   ? 0
                                          : (visible + kGroupKeys - 1) / kGroupKeys;
}

// Largest visible score of the row, lane by lane (-inf if none); hides the other scores of the last
// group.
inline Lanes MaxOfScores(float* s, int visible, int groups) {
  if (groups == 0) return Splat<Lanes>(kMinusInfinity);
  float* const last = s + (groups - 1) * kLanes;
  const int in_last = visible - (groups - 1) * kLanes;
  if (in_last < kLanes)
    Store(last, KeepFirst(Load<Lanes>(last), in_last, Splat<Lanes>(kMinusInfinity)));
  Lanes top = Load<Lanes>(s);
  for (int j = 1; j < groups; ++j) top = Max(top, Load<Lanes>(s + j * kLanes));
  return top;
}

// Hides the first n scores of a row from the softmax.
inline void HideFirst(float* s, int n) {
  const Lanes none = Splat<Lanes>(kMinusInfinity);
  for (int j = 0; j < kTileKeys && j < n; j += kLanes)
    Store(s + j, n - j < kLanes ? KeepFirst(none, n - j, Load<Lanes>(s + j)) : none);
}

// A row is computed against the groups in which it sees a key.
struct CausalMask {
  // Groups for rows of which the last sees `visible` keys.
  static int Groups(int visible, int n_groups) { return VisibleGroups(visible, n_groups); }
  // True if rows see nothing of a tile, of which `hidden` keys lie before the first one's window.
  static bool Passes(int hidden) { return hidden >= kTileKeys; }
  static int Computed(float* /*s*/, int visible, int /*n_groups*/) { return visible; }
  static float Top(float max) { return max; }
};

// A row is computed against all groups of the tile (attend_masked).
struct DenseMask {
  static int Groups(int /*visible*/, int n_groups) { return n_groups; }
  static bool Passes(int /*hidden*/) { return false; }
  // Hides all but the first `visible` scores of a row in n_groups groups.
  static int Computed(float* s, int visible, int n_groups) {
    const Lanes none = Splat<Lanes>(kMinusInfinity);
    for (int j = 0; j < n_groups * kLanes; j += kLanes) {
      const int n = visible - j;  // of this group
      if (n < kLanes) Store(s + j, n <= 0 ? none : KeepFirst(Load<Lanes>(s + j), n, none));
    }
    return kTileKeys;
  }
  // The weights of a row that sees nothing yet are computed too, and are 0 by any maximum.
  static float Top(float max) { return max == kMinusInfinity ? 0.0f : max; }
};

// Key scales of an int8 tile.
inline const float* KeyScales(const TileSource& source, int group) {
  return reinterpret_cast<const float*>(source.k[group]);
}
inline const float* ValueScales(const TileSource& source, int group) {
  return reinterpret_cast<const float*>(source.v[group] == nullptr ? source.k[group]
                                                                   : source.v[group]);
}

inline Lanes SumOfGroups(const Lanes (&p)[kTileGroups]) {
  return Add(Add(Add(p[0], p[1]), Add(p[2], p[3])), Add(Add(p[4], p[5]), Add(p[6], p[7])));
}

// P of a row that sees the whole of a tile without scales; returns the sum of P, lane by lane.
template <class Dot>
inline Lanes WeighAll(typename Dot::Scratch* scratch, int row, Lanes factor, Lanes shift) {
  const float* const s = scratch->s[row];
  Lanes p[kTileGroups];
#pragma GCC unroll 8
  for (int j = 0; j < kTileGroups; ++j) {
    p[j] = RoundWeight(Exp2Weight(Fma(Load<Lanes>(s + j * kLanes), factor, shift)));
    Dot::StoreWeights(scratch, row, j, p[j]);
  }
  return SumOfGroups(p);
}

// P of the row in all groups of the tile, times the scales of their values; returns the sum of P,
// lane by lane. A row without visible keys, or with scores of -inf only (max = -inf), weighs
// nothing.
template <class Dot>
Lanes Weigh(typename Dot::Scratch* scratch, int row, int groups, const KeyTile& tile, float max,
            float c) {
  const Lanes factor = Splat<Lanes>(c), shift = Splat<Lanes>(-(max * c));
  const bool is_int8 = tile.source != nullptr && tile.source->is_int8;
  if (max == kMinusInfinity) groups = 0;
  if (groups == kTileGroups && !is_int8) return WeighAll<Dot>(scratch, row, factor, shift);
  const float* const s = scratch->s[row];
  const Lanes zero = Splat<Lanes>(0.0f);
  Lanes p[kTileGroups];
  for (int j = 0; j < groups; ++j) {
    const Lanes weight = Exp2Weight(Fma(Load<Lanes>(s + j * kLanes), factor, shift));
    p[j] = RoundWeight(weight);
    Dot::StoreWeights(
        scratch, row, j,
        is_int8 ? RoundScaled(Mul(weight, Load<Lanes>(ValueScales(*tile.source, j)))) : p[j]);
  }
  for (int j = groups; j < kTileGroups; ++j) p[j] = zero;
  for (int j = groups; j < tile.n_groups; ++j) Dot::StoreWeights(scratch, row, j, zero);
  return SumOfGroups(p);
}

// S -> P of n rows from `first` on, at most sixteen; running maxima and sums, outputs rescaled.
// Step by step for all rows, so that the latencies of one row hide behind the others.
template <class Dot, class Mask>
void SoftmaxRows(typename Dot::Scratch* scratch, const TileRows& rows, int first, int n,
                 const KeyTile& tile, float c, const RowState& all) {
  const RowState state = {all.max + first, all.sum + first, all.out + first * kRowStride};
  const int n_groups = tile.n_groups;
  int groups[kLanes];
  Lanes lanes[kLanes];  // rows that do not exist hold anything
  for (Lanes& row : lanes) row = Splat<Lanes>(0.0f);
  alignas(64) float max[kLanes], sum[kLanes], rescale[kLanes] = {};
  for (int r = 0; r < n; ++r) {
    float* const s = scratch->s[first + r];
    const int visible = Mask::Computed(s, rows.visible[first + r], n_groups);
    groups[r] = VisibleGroups(visible, n_groups);
    if (rows.hidden != nullptr) HideFirst(s, rows.hidden[first + r]);
    lanes[r] = MaxOfScores(s, visible, groups[r]);
    Dot::BesideSoftmax(scratch);
  }
  Store(max, FoldMaxima(lanes));
  for (int r = 0; r < n; ++r) {
    const float before = state.max[r];
    max[r] = before > max[r] ? before : max[r];
    rescale[r] = max[r] == kMinusInfinity ? 0.0f : (before - max[r]) * c;
    state.max[r] = max[r];
  }
  Store(rescale, Exp2(Load<Lanes>(rescale)));  // 0 where `before` was -inf
  for (int r = 0; r < n; ++r) {
    Dot::BesideSoftmax(scratch);
    lanes[r] = Weigh<Dot>(scratch, first + r, groups[r], tile, Mask::Top(max[r]), c);
    Dot::BesideSoftmax(scratch);
  }
  Store(sum, FoldSums(lanes));
  for (int r = 0; r < n; ++r) {
    state.sum[r] = Fma(state.sum[r], rescale[r], sum[r]);
    ScaleRow(state.out + r * kRowStride, tile.value_dim, rescale[r]);
    Dot::BesideSoftmax(scratch);
  }
}

template <class Dot, class Mask>
void Softmax(typename Dot::Scratch* scratch, const TileRows& rows, const KeyTile& tile, float c,
             const RowState& state) {
  for (int first = 0; first < rows.n; first += kLanes) {
    const int n = rows.n - first < kLanes ? rows.n - first : kLanes;
    SoftmaxRows<Dot, Mask>(scratch, rows, first, n, tile, c, state);
  }
}

// Scores of n rows in n_groups groups, capped.
inline void CapScores(float (*s)[kTileKeys], int n, int n_groups, const ScoreScale& scale) {
  const Lanes inner = Splat<Lanes>(scale.inner), cap = Splat<Lanes>(scale.cap);
  for (int r = 0; r < n; ++r)
    for (int j = 0; j < n_groups * kLanes; j += kLanes)
      Store(s[r] + j, SoftCap(Load<Lanes>(s[r] + j), inner, cap));
}

// Scores of n rows over numbers, times the scales of their keys.
inline void ScaleScores(float (*s)[kTileKeys], int n, const KeyTile& tile) {
  for (int j = 0; j < tile.n_groups; ++j) {
    const Lanes scale = Load<Lanes>(KeyScales(*tile.source, j));
    for (int r = 0; r < n; ++r)
      Store(s[r] + j * kLanes, Mul(Load<Lanes>(s[r] + j * kLanes), scale));
  }
}

template <class Dot, class Mask>
void Attend(const TileRows& rows, const KeyTile& tile, const ScoreScale& scale,
            const RowState& segment) {
  typename Dot::Scratch scratch;
  const bool make = tile.source != nullptr && tile.fresh && !Dot::Reads(tile);
  Dot::Begin(tile, rows.n, &scratch);
  if (make) MakeKeys<Dot::kPrefetch>(tile);
  Dot::Scores(rows, tile, &scratch);
  if (tile.source != nullptr && tile.source->is_int8) ScaleScores(scratch.s, rows.n, tile);
  if (scale.cap != 0) CapScores(scratch.s, rows.n, tile.n_groups, scale);
  Softmax<Dot, Mask>(&scratch, rows, tile, scale.c, segment);
  if (make) MakeValues<Dot::kPrefetch>(tile);
  Dot::AddValues(&scratch, rows.n, tile, segment.out);
}

// Folds at most sixteen rows, so that one vector computes their exponentials.
inline void FoldRows(const RowState& segment, int n, int value_dim, float c, const RowState& rows) {
  alignas(64) float a[kLanes] = {}, b[kLanes] = {};
  for (int r = 0; r < n; ++r) {
    const float m = segment.max[r], before = rows.max[r];
    if (m == kMinusInfinity) continue;
    const float max = before > m ? before : m;
    a[r] = (before - max) * c;
    b[r] = (m - max) * c;
    rows.max[r] = max;
  }
  Store(a, Exp2(Load<Lanes>(a)));  // 0 where `before` was -inf
  Store(b, Exp2(Load<Lanes>(b)));
  for (int r = 0; r < n; ++r) {
    if (segment.max[r] == kMinusInfinity) continue;
    rows.sum[r] = Fma(rows.sum[r], a[r], segment.sum[r] * b[r]);
    const Lanes keep = Splat<Lanes>(a[r]), take = Splat<Lanes>(b[r]);
    float* const out = rows.out + r * kRowStride;
    const float* const add = segment.out + r * kRowStride;
    for (int d = 0; d < value_dim; d += kLanes)
      Store(out + d, Fma(Load<Lanes>(out + d), keep, Mul(Load<Lanes>(add + d), take)));
  }
}

void FoldSegment(const RowState& segment, int n, int value_dim, float c, const RowState& rows) {
  for (int r = 0; r < n; r += kLanes)
    FoldRows({segment.max + r, segment.sum + r, segment.out + r * kRowStride},
             n - r < kLanes ? n - r : kLanes, value_dim, c,
             {rows.max + r, rows.sum + r, rows.out + r * kRowStride});
}

void FinishRow(float sum, const float* weighted, int value_dim, bf16* out) {
  const Lanes inverse = Splat<Lanes>(1.0f / sum);
  for (int d = 0; d < value_dim; d += kLanes)
    StoreBf16(out + d, Add(Mul(Load<Lanes>(weighted + d), inverse), Splat<Lanes>(0.0f)));
}

template <class Dot>
constexpr AttentionTileKernels TileKernelsOf() {
  return {.max_rows = Dot::kMaxRows,
          .edge_rows = Dot::kEdgeRows,
          .laid_out_floats = Dot::kLaidOutFloats,
          .pack_query = Dot::PackQuery,
          .attend = Attend<Dot, CausalMask>,
          .attend_masked = Attend<Dot, DenseMask>,
          .fold = FoldSegment,
          .finish = FinishRow};
}

}  // namespace
}  // namespace baton
