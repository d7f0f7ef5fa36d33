// Few rows on AMX tiles, a segment of up to four tiles of 128 keys at a time, so that keys and
// values stream from memory without a pause: all scores, then all weights, then all values. The
// bits are those of one tile after the other. For kernel units with AVX-512.
//
//   scores    for each tile, for each four groups of 16 keys: C (rows, 16 keys) x 4 in registers,
//             per 32 dims one A and four B, each loaded from the page (int8: from `made`)
//   weights   maxima of all tiles and rows at once, then running maxima, exponentials, sums
//   values    for each tile: outputs rescaled; for each 64 dims: C (rows, 16 dims) x 4,
//             per 32 keys one A and four B
//
// Memory that is read next is prefetched evenly beside the products and the softmax.
//
// Tiles is amx_tiles.h, or its emulation in the tests.
#pragma once

#include "engine/cpu/attention/attention_segment_ahead.h"
#include "engine/cpu/attention/attention_softmax.h"

namespace baton {
namespace {

template <class Tiles>
class SegmentDot {
 public:
  static constexpr int kMaxRows = 16;
  static constexpr int kAtOnce = 4;  // B tiles side by side
  static constexpr int64_t kTileBytes = 1024;

  struct Scratch {
    alignas(64) float s[kMaxRows * kSegmentTiles][kTileKeys];  // (tile, row), rows adjacent
    alignas(64) bf16 p[kMaxRows * kSegmentTiles][kTileKeys];
    // B tiles that pages do not hold, of one product of four: the next one is made meanwhile.
    alignas(64) char made[2][kAtOnce * kTileBytes];
    SegmentAhead* ahead;
    float rescale[kMaxRows * kSegmentTiles + kLanes];
  };

  static void Attend(const TileRows& rows, const KeySegment& segment, const KeySegment& next,
                     const ScoreScale& scale, const RowState& state) {
    SegmentAhead ahead(segment, next, rows.n);
    Scratch scratch;
    scratch.ahead = &ahead;
    Tiles::ConfigureRows(rows.n);
    if (segment.tiles[0].source == nullptr)
      AttendOf<false>(rows, segment, scale, state, &scratch);
    else
      AttendOf<true>(rows, segment, scale, state, &scratch);
    Tiles::Release();
  }

  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    StoreRounded(scratch->p[row] + group * kGroupKeys, p);
  }

 private:
  template <bool kInt8>
  static void AttendOf(const TileRows& rows, const KeySegment& segment, const ScoreScale& scale,
                       const RowState& state, Scratch* scratch) {
    const KeyTile* const tiles = segment.tiles;
    const int n_tiles = segment.n_tiles;
    for (int t = 0; t < n_tiles; ++t) Scores<kInt8>(rows, tiles[t], t, scratch);
    for (int t = 0; t < n_tiles; ++t) {
      float(*const s)[kTileKeys] = scratch->s + t * rows.n;
      if (kInt8) ScaleScores(s, rows.n, tiles[t]);
      if (scale.cap != 0) CapScores(s, rows.n, tiles[t].n_groups, scale);
    }
    Softmax(rows, tiles, n_tiles, scale.c, state, scratch);
    for (int t = 0; t < n_tiles; ++t) {
      for (int r = 0; r < rows.n; ++r)
        ScaleRow(state.out + r * kRowStride, tiles[t].value_dim, scratch->rescale[t * rows.n + r]);
      AddValues<kInt8>(tiles[t], t, rows.n, scratch, state.out);
    }
  }

  // Four B tiles side by side, with rows row_bytes apart.
  struct Across {
    const char* at[kAtOnce];
    int64_t row_bytes;
  };

  // Tiles of bf16 pages are used once: loads that bypass L1 leave it more of the buffers through
  // which memory comes (AMX Xeon, loads and products alone: 84 -> 91 % of the speed of reading).
  template <int t, bool kInt8>
  static inline __attribute__((always_inline)) void LoadB(const char* from, int64_t row_bytes) {
    if constexpr (kInt8)
      Tiles::template Load<t>(from, row_bytes);
    else
      Tiles::template LoadOnce<t>(from, row_bytes);
  }

  // C += A B for four B. a: n rows, a_stride bytes apart.
  template <bool kInt8>
  static inline __attribute__((always_inline)) void Multiply(const void* a, int64_t a_stride,
                                                             const Across& b, SegmentAhead* ahead) {
    Tiles::template Load<4>(a, a_stride);
    LoadB<5, kInt8>(b.at[0], b.row_bytes);
    Tiles::template Dot<0, 4, 5>();
    ahead->BesideProduct();
    LoadB<6, kInt8>(b.at[1], b.row_bytes);
    Tiles::template Dot<1, 4, 6>();
    ahead->BesideProduct();
    LoadB<7, kInt8>(b.at[2], b.row_bytes);
    Tiles::template Dot<2, 4, 7>();
    ahead->BesideProduct();
    LoadB<5, kInt8>(b.at[3], b.row_bytes);
    Tiles::template Dot<3, 4, 5>();
    ahead->BesideProduct();
  }

  // Groups beyond the last one read the last one; nobody looks at their scores.
  template <bool kInt8>
  static void Scores(const TileRows& rows, const KeyTile& tile, int t, Scratch* scratch) {
    for (int j = 0; j < tile.n_groups; j += kAtOnce) {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
      for (int d = 0; d < tile.key_dim; d += 32) {
        Across b = {{}, 64};
        for (int i = 0; i < kAtOnce; ++i) {
          const int group = j + i < tile.n_groups ? j + i : tile.n_groups - 1;
          if constexpr (!kInt8) {
            b.at[i] = reinterpret_cast<const char*>(tile.k[group] + d * kGroupKeys);
            continue;
          }
          char* const made = scratch->made[d / 32 % 2] + i * kTileBytes;
          const int8_t* const numbers = Numbers(tile.source->k[group]) + d * kGroupKeys;
#pragma GCC unroll 16
          for (int pair = 0; pair < 16; ++pair)
            WidenLine(numbers + pair * 2 * kGroupKeys, numbers + (pair * 2 + 1) * kGroupKeys,
                      made + pair * 64);
          b.at[i] = made;
        }
        Multiply<kInt8>(static_cast<const char*>(rows.q) + d * 2, kRowStride * 4, b,
                        scratch->ahead);
      }
      float* const s = scratch->s[t * rows.n] + j * kGroupKeys;
      Tiles::template Store<0>(s, kTileKeys * 4);
      Tiles::template Store<1>(s + kGroupKeys, kTileKeys * 4);
      Tiles::template Store<2>(s + 2 * kGroupKeys, kTileKeys * 4);
      Tiles::template Store<3>(s + 3 * kGroupKeys, kTileKeys * 4);
    }
  }

  // S -> P of all tiles and rows; running maxima and sums, and by what outputs are rescaled.
  static void Softmax(const TileRows& rows, const KeyTile* tiles, int n_tiles, float c,
                      const RowState& state, Scratch* scratch) {
    const int n = rows.n, all = n * n_tiles;
    alignas(64) float max[kMaxRows * kSegmentTiles + kLanes], sum[sizeof max / sizeof *max];
    int groups[kMaxRows * kSegmentTiles];
    Lanes lanes[kLanes];  // rows that do not exist hold anything
    for (Lanes& row : lanes) row = Splat<Lanes>(0.0f);
    for (int t = 0, i = 0; t < n_tiles; ++t)
      for (int r = 0; r < n; ++r, ++i) {
        const int visible = rows.visible[r] - t * kTileKeys;
        groups[i] = VisibleGroups(visible, tiles[t].n_groups);
        lanes[i % kLanes] = MaxOfScores(scratch->s[i], visible, groups[i]);
        scratch->ahead->BesideSoftmax();
        if (i % kLanes == kLanes - 1 || i == all - 1)
          Store(max + i / kLanes * kLanes, FoldMaxima(lanes));
      }
    float* const rescale = scratch->rescale;
    for (int i = 0; i < all; ++i) {
      const float before = i < n ? state.max[i] : max[i - n];
      max[i] = before > max[i] ? before : max[i];
      rescale[i] = max[i] == kMinusInfinity ? 0.0f : (before - max[i]) * c;
    }
    for (int i = all; i % kLanes != 0; ++i) rescale[i] = 0.0f;
    for (int i = 0; i < all; i += kLanes) Store(rescale + i, Exp2(Load<Lanes>(rescale + i)));
    for (int t = 0, i = 0; t < n_tiles; ++t)
      for (int r = 0; r < n; ++r, ++i) {
        scratch->ahead->BesideSoftmax();
        lanes[i % kLanes] = Weigh<SegmentDot>(scratch, i, groups[i], tiles[t], max[i], c);
        scratch->ahead->BesideSoftmax();
        if (i % kLanes == kLanes - 1 || i == all - 1)
          Store(sum + i / kLanes * kLanes, FoldSums(lanes));
      }
    for (int r = 0; r < n; ++r) {
      for (int i = r; i < all; i += n) state.sum[r] = Fma(state.sum[r], rescale[i], sum[i]);
      state.max[r] = max[all - n + r];
    }
  }

  template <bool kInt8>
  static void AddValues(const KeyTile& tile, int t, int n, Scratch* scratch, float* out) {
    if (tile.n_groups % 2 != 0)
      for (int r = 0; r < n; ++r)
        StoreWeights(scratch, t * n + r, tile.n_groups, Splat<Lanes>(0.0f));
    for (int d = 0; d < tile.value_dim; d += kAtOnce * kLanes) {
      const int across = tile.value_dim - d < kAtOnce * kLanes ? 2 : kAtOnce;
      float* const c = out + d;
      Tiles::template Load<0>(c, kRowStride * 4);
      Tiles::template Load<1>(c + kLanes, kRowStride * 4);
      if (across > 2) {
        Tiles::template Load<2>(c + 2 * kLanes, kRowStride * 4);
        Tiles::template Load<3>(c + 3 * kLanes, kRowStride * 4);
      }
      for (int j = 0; j < tile.n_groups; j += 2)
        Multiply<kInt8>(scratch->p[t * n] + j * kGroupKeys, kTileKeys * 2,
                        ValueTiles<kInt8>(tile, j, d, across, scratch->made[j / 2 % 2]),
                        scratch->ahead);
      Tiles::template Store<0>(c, kRowStride * 4);
      Tiles::template Store<1>(c + kLanes, kRowStride * 4);
      if (across > 2) {
        Tiles::template Store<2>(c + 2 * kLanes, kRowStride * 4);
        Tiles::template Store<3>(c + 3 * kLanes, kRowStride * 4);
      }
    }
  }

  // Values of groups j and j + 1 and of `across` times 16 dims from d on, in the page if it has
  // them side by side, else made. A missing second group is zero (of numbers: the first again, its
  // weights are zero and numbers are finite); missing tiles read the first, and nobody looks at
  // their products.
  template <bool kInt8>
  static inline __attribute__((always_inline)) Across ValueTiles(const KeyTile& tile, int j, int d,
                                                                 int across, char* made) {
    const int second = j + 1 < tile.n_groups ? j + 1 : j;
    const auto tiles_at = [across](const char* first, int64_t next_tile, int64_t row_bytes) {
      Across b = {{}, row_bytes};
      for (int i = 0; i < kAtOnce; ++i) b.at[i] = first + (i < across ? i * next_tile : 0);
      return b;
    };
    if constexpr (kInt8) {
      const int64_t width = tile.value_dim;
      const int8_t* const halves[2] = {Numbers(tile.source->v[j]) + d,
                                       Numbers(tile.source->v[second]) + d};
      char* row = made;
      for (const int8_t* numbers : halves)
        for (int pair = 0; pair < 8; ++pair, numbers += 2 * width, row += 64)
          for (int i = 0; i < across; ++i)
            WidenLine(numbers + i * kLanes, numbers + width + i * kLanes, row + i * kTileBytes);
      return tiles_at(made, kTileBytes, 64);
    }
    const int64_t line_bytes = int64_t{4} * tile.value_dim;
    const char* const low = reinterpret_cast<const char*>(tile.v[j]) + d * 4;
    const char* const high = reinterpret_cast<const char*>(tile.v[second]) + d * 4;
    if (high == low + 8 * line_bytes) return tiles_at(low, 64, line_bytes);
    for (int pair = 0; pair < 16; ++pair) {
      const char* const line = (pair < 8 ? low : high) + pair % 8 * line_bytes;
      const bool is_missing = pair >= 8 && second == j;
      for (int i = 0; i < across; ++i)
        _mm512_store_si512(made + i * kTileBytes + pair * 64,
                           is_missing ? _mm512_setzero_si512() : _mm512_loadu_si512(line + i * 64));
    }
    return tiles_at(made, kTileBytes, 64);
  }
};

template <class Segments>
constexpr AttentionTileKernels WithSegments(AttentionTileKernels kernels) {
  kernels.segment_rows = Segments::kMaxRows;
  kernels.attend_segment = Segments::Attend;
  return kernels;
}

}  // namespace
}  // namespace baton
