// Tile order by AMX: one tdpbf16ps is one 32-k group of the tile order for 16 rows x 16 columns. A
// K group of a page has the layout of a row of B tiles; two neighbouring V groups are one B tile
// per sixteen dims. Tiles is amx_tiles.h, or its emulation in the tests. For kernel units with
// AVX-512.
#pragma once

#include "engine/cpu/attention/attention_softmax.h"

namespace baton {
namespace {

template <class Tiles>
struct TileDot {
  static constexpr int kTileRows = 16;
  static constexpr int kMaxRows = 2 * kTileRows, kEdgeRows = kMaxRows;
  static constexpr int kLaidOutFloats = 0;
  static constexpr bool kPrefetch = true;
  static constexpr int kMaxSteps = kMaxKeyDim / 32;
  struct Scratch {
    alignas(64) float s[kMaxRows][kTileKeys];
    alignas(64) bf16 p[kMaxRows][kTileKeys];
    alignas(64) bf16 v[kTileKeys * kMaxValueDim];  // groups that are not adjacent
    alignas(64) float out[kMaxRows * kRowStride];  // rows of a tile with fewer than 16
  };

  static bool Reads(const KeyTile& /*tile*/) { return false; }
  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    bf16* const row = static_cast<bf16*>(packed);
    for (int i = 0; i < head_dim; ++i) row[i] = q[i];
    for (int i = head_dim; i % 32 != 0; ++i) row[i] = 0;
  }

  // Rows of a tile beyond the last one compute values that are never read.
  static void Scores(const TileRows& rows, const KeyTile& tile, Scratch* scratch) {
    const int n_steps = (tile.key_dim + 31) / 32;
    Tiles::Configure();
    for (int j = 0; j < tile.n_groups; j += 2) {
      const bool pair = j + 1 < tile.n_groups;
      const bf16* b[2][kMaxSteps];
      for (int g = 0; g < n_steps; ++g) {
        b[0][g] = tile.k[j] + g * kStepElements;
        b[1][g] = tile.k[pair ? j + 1 : j] + g * kStepElements;
      }
      Product(static_cast<const char*>(rows.q), kRowStride * 4, b, 64, n_steps, rows.n > kTileRows,
              pair, true, scratch->s[0] + j * kGroupKeys, kTileKeys);
    }
    Tiles::Release();
  }

  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(scratch->p[row] + group * kGroupKeys),
                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(p.v), 16)));
  }

  static void AddValues(Scratch* scratch, int n, const KeyTile& tile, float* out) {
    const int value_dim = tile.value_dim;
    const int n_steps = (tile.n_groups + 1) / 2;
    const bf16* pairs[kTileGroups / 2];
    for (int g = 0; g < n_steps; ++g) pairs[g] = GroupPair(tile, 2 * g, scratch);
    if (tile.n_groups % 2 != 0)
      for (int r = 0; r < n; ++r) StoreWeights(scratch, r, tile.n_groups, Splat<Lanes>(0.0f));
    // A tile is stored whole: rows beyond n must not be written.
    const bool whole = n % kTileRows == 0;
    float* const to = whole ? out : scratch->out;
    if (!whole) CopyRows(out, n, value_dim, to);
    Tiles::Configure();
    for (int d = 0; d < value_dim; d += 2 * kTileRows) {
      const bool second = d + kTileRows < value_dim;
      const bf16* b[2][kMaxSteps];
      for (int g = 0; g < n_steps; ++g) {
        b[0][g] = pairs[g] + 2 * d;
        b[1][g] = pairs[g] + 2 * (second ? d + kTileRows : d);
      }
      Product(reinterpret_cast<const char*>(scratch->p[0]), kTileKeys * 2, b, 4 * value_dim,
              n_steps, n > kTileRows, second, false, to + d, kRowStride);
      const int j = d / kTileRows;
      if (tile.fresh && tile.source == nullptr && j < tile.n_groups)
        PrefetchGroups(tile.next_k, j, j + 1 < tile.n_groups, tile.key_dim);
    }
    Tiles::Release();
    if (!whole) CopyRows(to, n, value_dim, out);
  }

  static void Begin(const KeyTile& /*tile*/, int /*n*/, Scratch* /*scratch*/) {}
  static void BesideSoftmax(Scratch* /*scratch*/) {}

 private:
  static constexpr int kStepElements = 32 * kGroupKeys;  // elements of a B tile

  // C (one or two tiles down, one or two across) = A B, or C + A B, over n_steps 32-k groups.
  // a: rows a_stride bytes apart, groups 64 bytes apart; b[column][group]: tiles with rows b_stride
  // bytes apart; c_stride in floats.
  static void Product(const char* a, int64_t a_stride, const bf16* const (&b)[2][kMaxSteps],
                      int64_t b_stride, int n_steps, bool second_row, bool second_column,
                      bool from_zero, float* c, int64_t c_stride) {
    const char* const a_low = a + kTileRows * a_stride;
    float* const c_low = c + kTileRows * c_stride;
    if (from_zero) {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
    } else {
      Tiles::template Load<0>(c, c_stride * 4);
      if (second_column) Tiles::template Load<1>(c + 16, c_stride * 4);
      if (second_row) Tiles::template Load<2>(c_low, c_stride * 4);
      if (second_row && second_column) Tiles::template Load<3>(c_low + 16, c_stride * 4);
    }
    for (int g = 0; g < n_steps; ++g) {
      Tiles::template Load<4>(a + g * 64, a_stride);
      Tiles::template Load<6>(b[0][g], b_stride);
      Tiles::template Dot<0, 4, 6>();
      if (second_column) {
        Tiles::template Load<7>(b[1][g], b_stride);
        Tiles::template Dot<1, 4, 7>();
      }
      if (!second_row) continue;
      Tiles::template Load<5>(a_low + g * 64, a_stride);
      Tiles::template Dot<2, 5, 6>();
      if (second_column) Tiles::template Dot<3, 5, 7>();
    }
    Tiles::template Store<0>(c, c_stride * 4);
    if (second_column) Tiles::template Store<1>(c + 16, c_stride * 4);
    if (second_row) Tiles::template Store<2>(c_low, c_stride * 4);
    if (second_row && second_column) Tiles::template Store<3>(c_low + 16, c_stride * 4);
  }

  // Sixteen V lines (per sixteen dims) of groups j and j + 1, in the page if the groups are
  // adjacent; a missing second group is zero.
  static const bf16* GroupPair(const KeyTile& tile, int j, Scratch* scratch) {
    const int64_t size = static_cast<int64_t>(kGroupKeys) * tile.value_dim;
    const bool pair = j + 1 < tile.n_groups;
    if (pair && tile.v[j + 1] == tile.v[j] + size) return tile.v[j];
    bf16* const copy = scratch->v + j * size;
    __builtin_memcpy(copy, tile.v[j], static_cast<size_t>(size) * 2);
    if (pair)
      __builtin_memcpy(copy + size, tile.v[j + 1], static_cast<size_t>(size) * 2);
    else
      __builtin_memset(copy + size, 0, static_cast<size_t>(size) * 2);
    return copy;
  }

  static void PrefetchGroups(const bf16* const (&groups)[kTileGroups], int j, bool pair,
                             int key_dim) {
    for (int i = 0; i < key_dim * kGroupKeys; i += 32) {
      Tiles::Prefetch(groups[j] + i);
      if (pair) Tiles::Prefetch(groups[j + 1] + i);
    }
  }

  static void CopyRows(const float* from, int n, int width, float* to) {
    for (int r = 0; r < n; ++r)
      for (int d = 0; d < width; d += kLanes)
        Store(to + r * kRowStride + d, Load<Lanes>(from + r * kRowStride + d));
  }
};

}  // namespace
}  // namespace baton
