// Integer weights on tiles (policies W of gemm_tile.h; gemm_integer.h defines the result). A tile
// of rows is 64 k; with int4 in groups of 32 k it is one group, and its other half is zero, so that
// the content of the weights' tile there does not matter. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile_group_sets.h"
#include "engine/cpu/linear/gemm_tile_groups.h"
#include "engine/cpu/linear/gemm_tile_plain_sets.h"
#include "engine/cpu/linear/gemm_tile_squares.h"
#include "engine/cpu/linear/input_row.h"
#include "engine/cpu/linear/integer_rows.h"
#include "engine/numerics/lanes.h"

namespace baton {
namespace {

// Follows the tiles of integer rows: the scale of each row, and for int8 the start of its sums.
struct RowFactors {
  RowFactors(const LinearJob& job, const PackedTiles& tiles)
      : scales(static_cast<float*>(
            static_cast<void*>(static_cast<char*>(job.packed_rows) + tiles.bytes()))),
        starts(static_cast<int32_t*>(static_cast<void*>(scales + tiles.rows()))) {}
  static int64_t Bytes(const PackedTiles& tiles) { return tiles.rows() * 8; }
  float* scales;
  int32_t* starts;
};

// Packs a row as signed bytes, at most tile_k k per tile. Stored weights are unsigned with the zero
// point `zero_point`; the start of the row's sums compensates for it.
inline void PackIntegerRow(const LinearJob& job, const PackedTiles& tiles, int64_t tile_k,
                           int32_t zero_point, int64_t row, bf16* room) {
  const RowFactors factors(job, tiles);
  const int64_t k = row < job.rows ? job.k : 0;
  const bf16* const x = k > 0 ? InputRow(job, row, room) : nullptr;
  const RowScale scale = ScaleOfRow(x, k);
  __m512i sums = _mm512_setzero_si512();
  const char* before = nullptr;
  // Sums a line when the next one is written: its two halves are then in L1.
  const auto sum_before = [&] {
    if (before == nullptr) return;
    sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_load_si512(before));
  };
  for (int64_t first = 0; first < tiles.k_tiles; first += tiles.block_tiles) {
    char* out = tiles.Row(job, row, first);
    const int64_t end = first + tiles.TilesFrom(first);
    for (int64_t tile = first; tile < end; ++tile, out += kTileBytes) {
      int8_t* const line = static_cast<int8_t*>(static_cast<void*>(out));
      QuantizeStep<Lanes>(x, tile * tile_k, k, scale, line);
      // Groups of 32 k fill half of a tile.
      QuantizeStep<Lanes>(x, tile * tile_k + 32, tile_k > 32 ? k : 0, scale, line + 32);
      sum_before();
      before = out;
    }
  }
  sum_before();
  alignas(64) int32_t parts[16];
  _mm512_store_si512(parts, sums);
  int32_t sum = 0;
  for (const int32_t part : parts) sum += part;
  factors.scales[row] = scale.scale;
  factors.starts[row] = -zero_point * sum;
}

struct Int8OnTiles {
  static constexpr int64_t kTileK = 64;
  static constexpr int64_t kScaleBytes = 64;  // scales of a block, before its tiles
  static constexpr int32_t kZeroPoint = 128;
  static PackedTiles Tiles(const LinearJob& job, int64_t row_tiles, int64_t max) {
    return PackedTiles::Even(row_tiles, job.k_padded / kTileK, 1, max);
  }
  static int64_t PackedBytes(const PackedTiles& tiles) {
    return tiles.bytes() + RowFactors::Bytes(tiles);
  }
  static void PackRow(const LinearJob& job, const PackedTiles& tiles, int64_t row, bf16* room) {
    PackIntegerRow(job, tiles, kTileK, kZeroPoint, row, room);
  }

  static int64_t KBytes(const LinearJob& /*job*/, int64_t k_tile) {
    return kScaleBytes + k_tile * kTileBytes;
  }
  template <class T, int c, int a, int b>
  static void Dot() {
    T::template DotInt8<c, a, b>();
  }
  template <class T, class N>
  using Squares = PlainSquares<T, N, Int8OnTiles>;
  static constexpr int64_t kStreamRows = 48;
  template <class T>
  using Sets = PlainSets<T, Int8OnTiles>;

  struct Outputs {
    Outputs(const LinearJob& job, const PackedTiles& tiles, int64_t block, int64_t blocks)
        : factors(job, tiles) {
      const char* const from = static_cast<const char*>(job.weights) + block * job.block_bytes;
      scales[0] = _mm512_loadu_ps(from);
      scales[1] = _mm512_loadu_ps(from + (blocks > 1 ? job.block_bytes : 0));
    }
    Lanes Get(int64_t row, int b, const float* sums) const {
      const __m512i sum =
          _mm512_add_epi32(_mm512_loadu_si512(sums), _mm512_set1_epi32(factors.starts[row]));
      return {_mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                            _mm512_mul_ps(_mm512_set1_ps(factors.scales[row]), scales[b]))};
    }
    RowFactors factors;
    __m512 scales[2];
  };
};

struct Int4OnTiles {
  static constexpr int64_t kBlockK = 512;  // k of a K block: 8 KiB of a block's weights as tiles
  static int64_t TileK(const LinearJob& job) { return Min(job.group_k, 64); }
  // K blocks are whole groups.
  static PackedTiles Tiles(const LinearJob& job, int64_t row_tiles, int64_t /*max*/) {
    return PackedTiles::Even(row_tiles, job.k_padded / TileK(job), job.group_k / TileK(job),
                             kBlockK / job.group_k);
  }
  static int64_t PackedBytes(const PackedTiles& tiles) {
    return tiles.bytes() + RowFactors::Bytes(tiles);
  }
  static void PackRow(const LinearJob& job, const PackedTiles& tiles, int64_t row, bf16* room) {
    PackIntegerRow(job, tiles, TileK(job), 0, row, room);
  }

  static int64_t KBytes(const LinearJob& job, int64_t k_tile) {
    return k_tile * TileK(job) / job.group_k * job.group_bytes;
  }
  template <class T, int c, int a, int b>
  static void Dot() {
    T::template DotSigned<c, a, b>();
  }
  template <class T, class N>
  using Squares = GroupedSquares<T, N, Int4OnTiles>;
  static constexpr int64_t kStreamRows = 32;
  template <class T>
  using Sets = GroupedSets<T, Int4OnTiles>;

  struct Outputs {
    Outputs(const LinearJob& job, const PackedTiles& tiles, int64_t /*block*/, int64_t /*blocks*/)
        : factors(job, tiles) {}
    Lanes Get(int64_t row, int /*b*/, const float* sums) const {
      return {_mm512_mul_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(factors.scales[row]))};
    }
    RowFactors factors;
  };
};

}  // namespace
}  // namespace baton
