// Chooses the kernel of a matrix product by its shape.
#include "engine/cuda/gemm.h"
#include "engine/cuda/multiprocessors.h"

namespace baton {
namespace {

int64_t PartsOf(int64_t n, int64_t part) { return (n + part - 1) / part; }

// Few rows: four warps to a block, which then share the rows, or two where four leave
// multiprocessors without a block. One warp is slower even then.
StreamTiles StreamTilesFor(GemmShape shape, int multiprocessors) {
  StreamTiles tiles;
  tiles.rows = shape.m <= 8 ? 8 : shape.m <= 16 ? 16 : 32;
  tiles.warps = PartsOf(shape.n, 64) < multiprocessors * 9 / 10 ? 2 : 4;
  // Half as many, where these spread a tenth better.
  const auto max_load = [&](int warps) {  // weights of a multiprocessor, which has two blocks
    const int64_t n_tiles = PartsOf(shape.n, 16 * warps), n_more = n_tiles - multiprocessors;
    return warps * (PartsOf(n_tiles, 2 * multiprocessors) +
                    (n_more > 0 ? PartsOf(n_more, 2 * multiprocessors) : 0));
  };
  if (shape.m <= 16 && tiles.warps == 4 && 10 * max_load(2) < 9 * max_load(4)) tiles.warps = 2;
  return tiles;
}

// Tells what 16 values of k of a tile take, in cycles of a multiprocessor: measured on an H200,
// where small tiles are bound by what a multiprocessor can fetch.
struct TileCost {
  TmaTiles tiles;
  int cycles;
  int cycles_of_two;  // at once
};
constexpr TileCost kTileCosts[] = {
    {{128, 256}, 281, 562}, {{128, 224}, 247, 494}, {{128, 192}, 218, 436}, {{128, 128}, 145, 290},
    {{128, 64}, 125, 250},  {{64, 128}, 137, 246},  {{64, 64}, 80, 160},    {{64, 32}, 60, 120}};

// More rows: the tiles that end first.
TmaTiles TmaTilesFor(GemmShape shape, int multiprocessors) {
  TmaTiles best;
  int64_t min_cycles = 0;
  for (const TileCost& each : kTileCosts) {
    const int64_t n_tiles =
        PartsOf(shape.m, each.tiles.rows) * PartsOf(shape.n, each.tiles.columns);
    const int64_t n_rounds = PartsOf(n_tiles, multiprocessors);
    const int64_t cycles = n_rounds / 2 * each.cycles_of_two + n_rounds % 2 * each.cycles;
    if (min_cycles == 0 || cycles < min_cycles) {
      min_cycles = cycles;
      best = each.tiles;
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
  // With 17 to 32 rows, weights for more than a small tile on each multiprocessor go by the stream.
  const bool is_wide = PartsOf(shape.n, 64) > multiprocessors;
  if (shape.m <= 16 || (shape.m <= 32 && is_wide)) {
    return GemmByStream(a, a_stride, b, output, shape, StreamTilesFor(shape, multiprocessors),
                        stream);
  }
  return GemmByTma(a, a_stride, b, output, shape, TmaTilesFor(shape, multiprocessors), stream);
}

}  // namespace baton
