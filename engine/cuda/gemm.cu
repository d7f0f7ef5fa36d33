// Chooses the kernel of a matrix product by its shape.
#include "engine/cuda/early_launch.h"
#include "engine/cuda/gemm.h"

namespace baton {
namespace {

int64_t PartsOf(int64_t n, int64_t part) { return (n + part - 1) / part; }

// Few rows: as many warps to a block, which then share the rows, as leave every multiprocessor one.
StreamTiles StreamTilesFor(GemmShape shape, int multiprocessors) {
  StreamTiles tiles;
  tiles.rows = shape.m <= 8 ? 8 : shape.m <= 16 ? 16 : shape.m <= 32 ? 32 : 64;
  tiles.warps = 4;
  const int least = shape.m <= 16 ? 1 : 2;
  while (tiles.warps > least && PartsOf(shape.n, 16 * tiles.warps) < multiprocessors * 9 / 10)
    tiles.warps /= 2;
  return tiles;
}

// Many rows: the tiles that end first, if a multiprocessor has one of 128 rows, or two of 64, at a
// time. Narrow tiles cost more for each column.
TmaTiles TmaTilesFor(GemmShape shape, int multiprocessors) {
  TmaTiles best;
  int64_t least = 0;
  for (const TmaTiles& tiles : kTmaTiles) {
    const int64_t n_tiles =
        PartsOf(shape.m, int64_t{tiles.rows} * tiles.cluster) * PartsOf(shape.n, tiles.columns);
    const int64_t n_at_once = int64_t{multiprocessors} * (128 / tiles.rows) / tiles.cluster;
    const int64_t cost = PartsOf(n_tiles, n_at_once) * (tiles.columns + 48);
    if (least == 0 || cost < least) {
      least = cost;
      best = tiles;
    }
  }
  return best;
}

}  // namespace

cudaError_t Multiply(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                     GemmShape shape, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = CountMultiprocessors(&multiprocessors); error != cudaSuccess)
    return error;
  if (shape.m <= 64) {
    return GemmByStream(a, a_stride, b, output, shape, StreamTilesFor(shape, multiprocessors),
                        stream);
  }
  return GemmByTma(a, a_stride, b, output, shape, TmaTilesFor(shape, multiprocessors), stream);
}

}  // namespace baton
