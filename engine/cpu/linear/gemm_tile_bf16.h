// bf16 weights on tiles (policy W of gemm_tile.h). A tile of rows is 32 k: one group of the tile
// order. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_plain_sets.h"
#include "engine/cpu/linear/gemm_tile_squares.h"
#include "engine/cpu/linear/input_row.h"
#include "engine/numerics/lanes.h"

namespace baton {
namespace {

struct Bf16OnTiles {
  static constexpr int64_t kTileK = 32;
  static PackedTiles Tiles(const LinearJob& job, int64_t row_tiles, int64_t max) {
    return PackedTiles::Even(row_tiles, job.k_padded / kTileK, 1, max);
  }
  static int64_t PackedBytes(const PackedTiles& tiles) { return tiles.bytes(); }
  static void PackRow(const LinearJob& job, const PackedTiles& tiles, int64_t row, bf16* room) {
    const bf16* const x = row < job.rows ? InputRow(job, row, room) : nullptr;
    for (int64_t k = 0; k < tiles.k_tiles; k += tiles.block_tiles) {
      char* out = tiles.Row(job, row, k);
      const int64_t end = k + tiles.TilesFrom(k);
      for (int64_t tile = k; tile < end; ++tile, out += kTileBytes) {
        _mm512_store_si512(
            out, x != nullptr ? _mm512_loadu_si512(x + tile * kTileK) : _mm512_setzero_si512());
      }
    }
  }

  static int64_t KBytes(const LinearJob& /*job*/, int64_t k_tile) { return k_tile * kTileBytes; }
  template <class T, int c, int a, int b>
  static void Dot() {
    T::template Dot<c, a, b>();
  }
  template <class T, class N>
  using Squares = PlainSquares<T, N, Bf16OnTiles>;
  static constexpr int64_t kStreamRows = 48;
  template <class T>
  using Sets = PlainSets<T, Bf16OnTiles>;

  struct Outputs {
    Outputs(const LinearJob& /*job*/, const PackedTiles& /*tiles*/, int64_t /*block*/,
            int64_t /*blocks*/) {}
    Lanes Get(int64_t /*row*/, int /*b*/, const float* sums) const { return Load<Lanes>(sums); }
  };
};

}  // namespace
}  // namespace baton
