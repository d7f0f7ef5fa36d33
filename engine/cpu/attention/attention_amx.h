// Tile order by AMX: one tdpbf16ps is one 32-k group of the tile order for 16 rows x 16 columns. A
// K group of a page has the layout of a row of B tiles; two neighbouring V groups are one B tile
// per sixteen dims. Tiles is amx_tiles.h, or its emulation in the tests. For kernel units with
// AVX-512.
//
// Rows attend a tile of keys in chunks of 32. The tile registers compute beside the vectors: while
// the softmax of a chunk runs, values are added to the chunk before it and scores are computed of
// the chunk after it, a step at a time.
//
//   tiles     S 0 | S 1       | P V 0, S 2 | P V 1, S 3 | P V 2     | P V 3
//   vectors       | softmax 0 | softmax 1  | softmax 2  | softmax 3 |
#pragma once

#include "engine/cpu/attention/attention_softmax.h"

namespace baton {
namespace {

// A product C = A B, or C += A B, of up to 32 rows: two tiles down and two across at a time, in
// steps of 32 k.
template <class Tiles>
class TileProduct {
 public:
  static constexpr int kTileRows = 16;

  // C = A B. b: one group per column, with its steps one after the other.
  void BeginScores(const void* q, int n, const KeyTile& tile, float* s) {
    Begin(q, kRowStride * 4, n, tile.n_groups, (tile.key_dim + 31) / 32, s, kTileKeys);
    is_sum_ = false;
    row_bytes_ = 64;
    for (int j = 0; j < tile.n_groups; ++j) groups_[j] = tile.k[j];
  }
  // C += A B. pairs: one pair of groups per step, with its columns side by side.
  void BeginValues(const bf16* p, int n, const KeyTile& tile, const bf16* const* pairs,
                   float* out) {
    Begin(p, kTileKeys * 2, n, tile.value_dim / kTileRows, (tile.n_groups + 1) / 2, out,
          kRowStride);
    is_sum_ = true;
    row_bytes_ = int64_t{4} * tile.value_dim;
    for (int g = 0; g < steps_; ++g) groups_[g] = pairs[g];
  }
  int left() const { return left_; }  // steps

  // noinline: inside the loops of vectors it would take their registers.
  __attribute__((noinline)) void Step() {
    float* const c = c_ + column_ * kTileRows;
    float* const c_low = c + kTileRows * c_stride_;
    if (step_ == 0) Open(c, c_low);
    const char* const a = a_ + step_ * 64;
    // Without a second column, the first is multiplied in its place; its sums are never read.
    const int second = column_ + 1 < columns_ ? column_ + 1 : column_;
    Tiles::template Load<4>(a, a_stride_);
    Tiles::template Load<6>(B(column_), row_bytes_);
    Tiles::template Load<7>(B(second), row_bytes_);
    Tiles::template Dot<0, 4, 6>();
    Tiles::template Dot<1, 4, 7>();
    if (has_second_row_) {
      Tiles::template Load<5>(a + kTileRows * a_stride_, a_stride_);
      Tiles::template Dot<2, 5, 6>();
      Tiles::template Dot<3, 5, 7>();
    }
    --left_;
    if (++step_ == steps_) Close(c, c_low);
  }

 private:
  void Begin(const void* a, int64_t a_stride, int n, int columns, int steps, float* c,
             int64_t c_stride) {
    a_ = static_cast<const char*>(a);
    a_stride_ = a_stride;
    c_ = c;
    c_stride_ = c_stride;
    columns_ = columns;
    steps_ = steps;
    left_ = (columns + 1) / 2 * steps;
    column_ = step_ = 0;
    has_second_row_ = n > kTileRows;
  }
  const bf16* B(int column) const {
    return is_sum_ ? groups_[step_] + column * 2 * kTileRows
                   : groups_[column] + step_ * 32 * kGroupKeys;
  }
  void Open(const float* c, const float* c_low) const {
    if (!is_sum_) {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
      return;
    }
    Tiles::template Load<0>(c, c_stride_ * 4);
    Tiles::template Load<1>(c + kTileRows, c_stride_ * 4);
    if (!has_second_row_) return;
    Tiles::template Load<2>(c_low, c_stride_ * 4);
    Tiles::template Load<3>(c_low + kTileRows, c_stride_ * 4);
  }
  void Close(float* c, float* c_low) {
    Tiles::template Store<0>(c, c_stride_ * 4);
    Tiles::template Store<1>(c + kTileRows, c_stride_ * 4);
    if (has_second_row_) {
      Tiles::template Store<2>(c_low, c_stride_ * 4);
      Tiles::template Store<3>(c_low + kTileRows, c_stride_ * 4);
    }
    step_ = 0;
    column_ += 2;
  }

  const char* a_ = nullptr;
  int64_t a_stride_ = 0;  // bytes
  float* c_ = nullptr;
  int64_t c_stride_ = 0;  // floats
  const bf16* groups_[kTileGroups] = {};
  int64_t row_bytes_ = 0;  // of B
  int columns_ = 0, steps_ = 0, left_ = 0;
  int column_ = 0, step_ = 0;
  bool has_second_row_ = false, is_sum_ = false;
};

template <class Tiles>
struct TileDot {
  static constexpr int kChunkRows = 32;
  // Rows of one call: more than a block has, except where very many heads share their keys.
  static constexpr int kMaxRows = 512, kEdgeRows = kMaxRows;
  static constexpr int kLaidOutFloats = 0;
  static constexpr bool kPrefetch = true;

  // Products that run beside the softmax of a chunk: first values, then scores.
  struct Beside {
    TileProduct<Tiles> values, scores;
    int every = 1, countdown = 1;  // calls between steps

    // Spreads the steps over so many calls.
    void SetPace(int calls) {
      const int steps = values.left() + scores.left();
      every = steps > 0 && steps < calls ? calls / steps : 1;
      countdown = every;
    }
    void Step() {
      if (values.left() > 0) {
        values.Step();
      } else if (scores.left() > 0) {
        scores.Step();
      }
    }
    void Rest() {
      while (values.left() > 0) values.Step();
      while (scores.left() > 0) scores.Step();
    }
  };
  // A chunk's scores and weights.
  struct Scratch {
    alignas(64) float s[kChunkRows][kTileKeys];
    alignas(64) bf16 p[kChunkRows][kTileKeys];
    alignas(64) bf16 v[kTileKeys * kMaxValueDim];  // groups that are not adjacent
    TileRows rows;
    RowState state;
    KeyTile tile;
    Beside* beside;
  };

  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    bf16* const row = static_cast<bf16*>(packed);
    for (int i = 0; i < head_dim; ++i) row[i] = q[i];
    for (int i = head_dim; i % 32 != 0; ++i) row[i] = 0;
  }
  static void StoreWeights(Scratch* chunk, int row, int group, Lanes p) {
    StoreRounded(chunk->p[row] + group * kGroupKeys, p);
  }
  static inline __attribute__((always_inline)) void BesideSoftmax(Scratch* chunk) {
    Beside& beside = *chunk->beside;
    if (--beside.countdown > 0) return;
    beside.countdown = beside.every;
    beside.Step();
  }

  template <class Mask>
  static void Attend(const TileRows& rows, const KeyTile& tile, const ScoreScale& scale,
                     const RowState& segment) {
    if (tile.source != nullptr && tile.fresh) {
      MakeKeys<kPrefetch>(tile);
      MakeValues<kPrefetch>(tile);
    }
    Beside beside;
    Scratch chunks[2];
    alignas(64) float out[kChunkRows * kRowStride];  // of a chunk that fills no whole tiles
    int from = 0, turn = 0;
    while (from < rows.n && !Begin<Mask>(rows, tile, segment, from, &chunks[0])) from += kChunkRows;
    if (from >= rows.n) return;
    Tiles::Configure();
    chunks[0].beside = chunks[1].beside = &beside;
    BeginScores(chunks[0], &beside.scores);
    beside.Rest();
    for (;; turn ^= 1) {
      Scratch& chunk = chunks[turn];
      from += kChunkRows;
      const bool has_next =
          from < rows.n && Begin<Mask>(rows, tile, segment, from, &chunks[turn ^ 1]);
      if (has_next) BeginScores(chunks[turn ^ 1], &beside.scores);
      const int n = chunk.rows.n;
      beside.SetPace(4 * n);
      if (tile.source != nullptr && tile.source->is_int8) ScaleScores(chunk.s, n, chunk.tile);
      if (scale.cap != 0) CapScores(chunk.s, n, chunk.tile.n_groups, scale);
      Softmax<TileDot, Mask>(&chunk, chunk.rows, chunk.tile, scale.c, chunk.state);
      beside.Rest();
      // A tile is stored whole: rows beyond n must not be written.
      const bool whole = n % kTileRows == 0;
      if (!whole) CopyRows(chunk.state.out, n, tile.value_dim, out);
      BeginValues(whole ? chunk.state.out : out, &chunk, &beside.values);
      if (has_next) continue;
      AddLast(tile, &beside.values);
      if (!whole) CopyRows(out, n, tile.value_dim, chunk.state.out);
      break;
    }
    Tiles::Release();
  }

 private:
  static constexpr int kTileRows = TileProduct<Tiles>::kTileRows;

  // Sets up the chunk of rows from `from` on; false if none of them sees a key of the tile (then no
  // row after them does, if they have windows).
  template <class Mask>
  static bool Begin(const TileRows& rows, const KeyTile& tile, const RowState& segment, int from,
                    Scratch* chunk) {
    const int n = rows.n - from < kChunkRows ? rows.n - from : kChunkRows;
    chunk->rows = {static_cast<const float*>(rows.q) + int64_t{from} * kRowStride,
                   rows.visible + from, n, rows.hidden == nullptr ? nullptr : rows.hidden + from};
    chunk->state = {segment.max + from, segment.sum + from,
                    segment.out + int64_t{from} * kRowStride};
    chunk->tile = tile;
    chunk->tile.n_groups = Mask::Groups(chunk->rows.visible[n - 1], tile.n_groups);
    return chunk->tile.n_groups > 0 && (rows.hidden == nullptr || !Mask::Passes(rows.hidden[from]));
  }

  // Rows of a tile beyond the last one compute values that are never read.
  static void BeginScores(Scratch& chunk, TileProduct<Tiles>* product) {
    product->BeginScores(chunk.rows.q, chunk.rows.n, chunk.tile, chunk.s[0]);
  }
  static void BeginValues(float* out, Scratch* chunk, TileProduct<Tiles>* product) {
    const KeyTile& tile = chunk->tile;
    const bf16* pairs[kTileGroups / 2];
    for (int j = 0; j < tile.n_groups; j += 2) pairs[j / 2] = GroupPair(tile, j, chunk);
    if (tile.n_groups % 2 != 0)
      for (int r = 0; r < chunk->rows.n; ++r)
        StoreWeights(chunk, r, tile.n_groups, Splat<Lanes>(0.0f));
    product->BeginValues(chunk->p[0], chunk->rows.n, tile, pairs, out);
  }

  // Values of the last chunk; the keys of the next tile are prefetched meanwhile.
  static void AddLast(const KeyTile& tile, TileProduct<Tiles>* values) {
    const bool ahead = tile.fresh && tile.source == nullptr;
    for (int j = 0; values->left() > 0; ++j) {
      values->Step();
      if (!ahead || j >= tile.n_groups) continue;
      for (int i = 0; i < tile.key_dim * kGroupKeys; i += 32) Tiles::Prefetch(tile.next_k[j] + i);
    }
  }

  // Sixteen V lines (per sixteen dims) of groups j and j + 1, in the page if the groups are
  // adjacent; a missing second group is zero.
  static const bf16* GroupPair(const KeyTile& tile, int j, Scratch* chunk) {
    const int64_t size = static_cast<int64_t>(kGroupKeys) * tile.value_dim;
    const bool pair = j + 1 < tile.n_groups;
    if (pair && tile.v[j + 1] == tile.v[j] + size) return tile.v[j];
    bf16* const copy = chunk->v + j * size;
    __builtin_memcpy(copy, tile.v[j], static_cast<size_t>(size) * 2);
    if (pair)
      __builtin_memcpy(copy + size, tile.v[j + 1], static_cast<size_t>(size) * 2);
    else
      __builtin_memset(copy + size, 0, static_cast<size_t>(size) * 2);
    return copy;
  }

  static void CopyRows(const float* from, int n, int width, float* to) {
    for (int r = 0; r < n; ++r)
      for (int d = 0; d < width; d += kLanes)
        Store(to + r * kRowStride + d, Load<Lanes>(from + r * kRowStride + d));
  }
};

// The kernels of TileDot.
template <class Tiles>
constexpr AttentionTileKernels TileKernelsOnTiles() {
  using Dot = TileDot<Tiles>;
  return {.max_rows = Dot::kMaxRows,
          .edge_rows = Dot::kEdgeRows,
          .laid_out_floats = Dot::kLaidOutFloats,
          .pack_query = Dot::PackQuery,
          .attend = Dot::template Attend<CausalMask>,
          .attend_masked = Dot::template Attend<DenseMask>,
          .fold = FoldSegment,
          .finish = FinishRow};
}

}  // namespace
}  // namespace baton
