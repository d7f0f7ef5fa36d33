// Linear layers on AMX tiles of 16 rows x 64 bytes: definitions shared by all forms
// (gemm_tile_stream.h, gemm_tile_nest.h). For kernel units with AVX-512.
//
// The policy T (amx_tiles.h) operates on tile registers 0..7:
//   T::Configure(), T::Release()      16 rows x 64 bytes for all eight; back to the initial state
//   T::ConfigureRows(n)               the same, but n rows for tiles 0 to 4
//   T::Zero<t>(), T::Load<t>(from, stride), T::Store<t>(to, stride)      stride in bytes
//   T::LoadOnce<t>(from, stride)      Load for data that is not needed again soon: bypasses L1
//   T::Dot<c, a, b>()        c += a (16 rows x 32 k) * b (16 k pairs x 16 outputs) of bf16: exactly
//                            one 32-k group of the tile order (linear.h)
//   T::DotInt8<c, a, b>()    c (int32) += a (16 rows x 64 k, signed) * b (16 k quads x 16 outputs,
//                            unsigned): exact
//   T::DotSigned<c, a, b>()  DotInt8 with signed b
//
// The policy W is a type of weights (gemm_tile_bf16.h, gemm_tile_integers.h):
//   W::Tiles(job, row_tiles, most)   how rows are packed, in K blocks of at most `most` k tiles
//   W::PackedBytes(tiles), W::PackRow(job, tiles, row, room)      row < tiles.rows()
//   W::KBytes(job, k_tile)   offset in a block of the weights of a k tile, the first of a K block
//   W::Dot<T, c, a, b>()     product with a tile of weights, 1 KiB of a packed block
//   W::Squares<T, N>         how a nest computes squares
//   W::Sets<T>               how a stream computes sets of blocks, of at most W::kStreamRows rows
//   W::Outputs(job, tiles, block, blocks).Get(row, b, sums)   values of a row's sums in block + b
//                            (b 0 or 1), before bias and epilogue
#pragma once

#include <cstdint>

#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSumTile = 256;  // sums of 16 rows x 16 outputs

inline int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows of a job as tiles:
//
//   [K block][row tile][k tile of the K block][16 rows][64 bytes]
//
// so that the rows that a K block multiplies are adjacent, and the rows multiplied next follow.
// Rows that do not exist are zero.
struct PackedTiles {
  int64_t row_tiles, k_tiles;
  int64_t block_tiles;  // k tiles of a K block; the last one may have fewer

  // K blocks as even as possible, of whole units of `unit` k tiles, at most `most` units each.
  static PackedTiles Even(int64_t row_tiles, int64_t k_tiles, int64_t unit, int64_t max) {
    const int64_t units = k_tiles / unit;
    return {row_tiles, k_tiles, DivideUp(units, DivideUp(units, max)) * unit};
  }

  int64_t rows() const { return row_tiles * 16; }
  int64_t bytes() const { return row_tiles * k_tiles * kTileBytes; }
  // Number of k tiles of the K block that begins with k tile k.
  int64_t TilesFrom(int64_t k) const { return Min(block_tiles, k_tiles - k); }
  // Tiles of row tile t in the K block that begins with k tile k.
  char* At(const LinearJob& job, int64_t t, int64_t k) const {
    return static_cast<char*>(job.packed_rows) + (k * row_tiles + t * TilesFrom(k)) * kTileBytes;
  }
  // The line of a row in the first of them.
  char* Row(const LinearJob& job, int64_t row, int64_t k) const {
    return At(job, row / 16, k) + row % 16 * 64;
  }
};

}  // namespace
}  // namespace baton
