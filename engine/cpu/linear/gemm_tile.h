// Linear layers on AMX tiles of 16 rows x 64 bytes: what the forms of them share
// (gemm_tile_stream.h, gemm_tile_nest.h). For kernel units with AVX-512.
//
// Of tile registers 0..7 the policy T (amx_tiles.h) gives
//   T::Configure(), T::Release()      16 rows x 64 bytes for all eight; back to the initial state
//   T::Zero<t>(), T::Load<t>(from, stride), T::Store<t>(to, stride)      stride in bytes
//   T::LoadOnce<t>(from, stride)      Load of what is not needed again soon: it passes L1 by
//   T::Dot<c, a, b>()        c += a (16 rows x 32 k) * b (16 k pairs x 16 outputs) of bf16, which
//   is
//                            one 32-k group of the tile order exactly (linear.h)
//   T::DotInt8<c, a, b>()    c (int32) += a (16 rows x 64 k, signed) * b (16 k quads x 16 outputs,
//                            unsigned): exact
//   T::DotSigned<c, a, b>()  the same with signed b
//
// and the policy W, a type of weights (gemm_tile_bf16.h, gemm_tile_integers.h),
//   W::Tiles(job, row_tiles, most)   how rows are packed, in K blocks of `most` k tiles at most
//   W::PackedBytes(tiles), W::Pack(job, tiles, row_tile, room)
//   W::KBytes(job, k_tile)   where in a block the weights of a k tile lie, the first of a K block
//   W::Dot<T, c, a, b>()     of a tile of weights, 1 KiB of a block as it is packed
//   W::Squares<T, N>         how a nest computes them
//   W::Outputs(job, tiles, block, blocks).Get(row, b, sums)   what a row's sums of block + b (b 0
//                            or 1) come to, before bias and epilogue
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
// so that the rows that a K block multiplies lie beside each other, and those multiplied next
// follow them. Rows that do not exist are zero.
struct PackedTiles {
  int64_t row_tiles, k_tiles;
  int64_t block_tiles;  // k tiles of a K block; the last one may have fewer

  // K blocks as even as possible, of whole units of `unit` k tiles, at most `most` of these.
  static PackedTiles Even(int64_t row_tiles, int64_t k_tiles, int64_t unit, int64_t most) {
    const int64_t units = k_tiles / unit;
    return {row_tiles, k_tiles, DivideUp(units, DivideUp(units, most)) * unit};
  }

  int64_t rows() const { return row_tiles * 16; }
  int64_t bytes() const { return row_tiles * k_tiles * kTileBytes; }
  // k tiles of the K block that begins with k tile k.
  int64_t TilesFrom(int64_t k) const { return Min(block_tiles, k_tiles - k); }
  // Tiles of row tile t in that K block.
  char* At(const LinearJob& job, int64_t t, int64_t k) const {
    return static_cast<char*>(job.packed_rows) + (k * row_tiles + t * TilesFrom(k)) * kTileBytes;
  }
};

}  // namespace
}  // namespace baton
