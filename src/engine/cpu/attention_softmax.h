// The parts of the attention that are no dot products, once for every path, on the sixteen virtual
// lanes; and Attend, which puts them together with the chains of a path. For kernel units.
//
// Dot is the path's way to the tile order (attention_chains.h):
//   Dot::kMaxRows, Dot::Scratch (holds S as float s[kMaxRows][kTileKeys]; P where the path wants
//   it) Dot::Scores(rows, tile, head_dim, &scratch)     S of the tile's groups, all rows
//   Dot::StoreWeights(&scratch, row, group, lanes)  P of sixteen keys, already rounded to bf16
//   Dot::AddValues(scratch, n, tile, head_dim, out) out += P V
#pragma once

#include "engine/cpu/attention_tile.h"
#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

inline constexpr float kMinusInfinity = -__builtin_inff();

inline float Exp2One(float x) { return FirstLane(Exp2(Splat<Lanes>(x))); }

inline void ScaleRow(float* row, int n, float by) {
  if (by == 1.0f) return;  // exact: x * 1 = x
  const Lanes factor = Splat<Lanes>(by);
  for (int d = 0; d < n; d += kLanes) Store(row + d, Mul(Load<Lanes>(row + d), factor));
}

template <class Dot>
void ClearWeights(typename Dot::Scratch* scratch, int row, int from, int to) {
  for (int j = from; j < to; ++j) Dot::StoreWeights(scratch, row, j, Splat<Lanes>(0.0f));
}

// S of one row -> P of the row; running maximum and sum, output rescaled.
template <class Dot>
void SoftmaxRow(typename Dot::Scratch* scratch, int row, int visible, int n_groups, int head_dim,
                float c, const RowState& state) {
  const int groups = visible >= kGroupKeys * n_groups ? n_groups : (visible + kLanes - 1) / kLanes;
  if (visible <= 0) return ClearWeights<Dot>(scratch, row, 0, n_groups);
  float* const s = scratch->s[row];
  const int last = groups - 1;  // the only group that may be partly visible
  const int last_visible = visible - last * kLanes;
  if (last_visible < kLanes)
    Store(s + last * kLanes,
          KeepFirst(Load<Lanes>(s + last * kLanes), last_visible, Splat<Lanes>(kMinusInfinity)));

  Lanes top = Load<Lanes>(s);
  for (int j = 1; j < groups; ++j) top = Max(top, Load<Lanes>(s + j * kLanes));
  const float before = state.max[row];
  const float tile_max = FoldMax(top);
  const float max = before > tile_max ? before : tile_max;
  if (max == kMinusInfinity) return ClearWeights<Dot>(scratch, row, 0, n_groups);

  const Lanes factor = Splat<Lanes>(c), shift = Splat<Lanes>(-(max * c));
  Lanes p[kTileGroups];
  for (int j = 0; j < groups; ++j) {
    p[j] = RoundBf16(Exp2(Fma(Load<Lanes>(s + j * kLanes), factor, shift)));
    Dot::StoreWeights(scratch, row, j, p[j]);
  }
  for (int j = groups; j < kTileGroups; ++j) p[j] = Splat<Lanes>(0.0f);
  ClearWeights<Dot>(scratch, row, groups, n_groups);

  const Lanes low = Add(Add(p[0], p[1]), Add(p[2], p[3]));
  const Lanes high = Add(Add(p[4], p[5]), Add(p[6], p[7]));
  const float rescale = before == kMinusInfinity ? 0.0f : Exp2One((before - max) * c);
  state.sum[row] = Fma(state.sum[row], rescale, FoldSum(Add(low, high)));
  ScaleRow(state.out + row * kRowStride, head_dim, rescale);
  state.max[row] = max;
}

template <class Dot>
void Attend(const TileRows& rows, const KeyTile& tile, int head_dim, float c,
            const RowState& segment) {
  typename Dot::Scratch scratch;
  Dot::Scores(rows, tile, head_dim, &scratch);
  for (int r = 0; r < rows.n; ++r)
    SoftmaxRow<Dot>(&scratch, r, rows.visible[r], tile.n_groups, head_dim, c, segment);
  Dot::AddValues(scratch, rows.n, tile, head_dim, segment.out);
}

void FoldSegment(const RowState& segment, int n, int head_dim, float c, const RowState& rows) {
  for (int r = 0; r < n; ++r) {
    const float m = segment.max[r], before = rows.max[r];
    if (m == kMinusInfinity) continue;
    const float max = before > m ? before : m;
    const float a = before == kMinusInfinity ? 0.0f : Exp2One((before - max) * c);
    const float b = Exp2One((m - max) * c);
    rows.sum[r] = Fma(rows.sum[r], a, segment.sum[r] * b);
    rows.max[r] = max;
    float* const out = rows.out + r * kRowStride;
    const float* const add = segment.out + r * kRowStride;
    for (int d = 0; d < head_dim; d += kLanes)
      Store(out + d,
            Fma(Load<Lanes>(out + d), Splat<Lanes>(a), Mul(Load<Lanes>(add + d), Splat<Lanes>(b))));
  }
}

void FinishRow(float sum, const float* weighted, int head_dim, bf16* out) {
  const Lanes inverse = Splat<Lanes>(1.0f / sum);
  for (int d = 0; d < head_dim; d += kLanes)
    StoreBf16(out + d, Add(Mul(Load<Lanes>(weighted + d), inverse), Splat<Lanes>(0.0f)));
}

template <class Dot>
constexpr AttentionTileKernels TileKernelsOf() {
  return {Dot::kMaxRows, Dot::PackQuery, Attend<Dot>, FoldSegment, FinishRow};
}

}  // namespace
}  // namespace baton
