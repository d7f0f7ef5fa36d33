// Starts the kernels of gemm_tma.cuh.
#include "engine/cuda/gemm_tma.cuh"

#include <algorithm>

#include "engine/cuda/gemm.h"
#include "engine/cuda/gemm_launch.h"

namespace baton {
namespace {

template <int kGroups, int kTileN>
cudaError_t Launch(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                   GemmShape shape, cudaStream_t stream) {
  using Tile = TmaTile<kGroups, kTileN>;
  TensorMap a_map, b_map;
  int multiprocessors = 0;
  cudaError_t error = EncodeBoxes({a, shape.m, shape.k, a_stride}, Tile::kRows, 1, &a_map);
  if (error == cudaSuccess) error = EncodeBoxes({b, shape.n, shape.k, shape.k}, kTileN, 1, &b_map);
  if (error == cudaSuccess) error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  const int64_t n_tiles =
      int64_t{(shape.m + Tile::kRows - 1) / Tile::kRows} * ((shape.n + kTileN - 1) / kTileN);
  const int64_t n_blocks = std::min(n_tiles, int64_t{multiprocessors} * Tile::kBlocks);
  return LaunchGemm(GemmTmaWgmmaKernel<kGroups, kTileN>,
                    {n_blocks, Tile::kThreads, Tile::kSharedBytes}, a_map, b_map, output, shape,
                    stream);
}

template <int kGroups, int kTileN>
KernelLaunch LaunchOf(const char* name) {
  using Tile = TmaTile<kGroups, kTileN>;
  return {name, Tile::kThreads, Tile::kSharedBytes};
}

}  // namespace

cudaError_t GemmByTma(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                      GemmShape shape, TmaTiles tiles, cudaStream_t stream) {
  if (!IsProduct(a_stride, output, shape)) return cudaErrorInvalidValue;
  const auto is = [&](int rows, int columns) {
    return tiles.rows == rows && tiles.columns == columns;
  };
  if (is(128, 256)) return Launch<2, 256>(a, a_stride, b, output, shape, stream);
  if (is(128, 224)) return Launch<2, 224>(a, a_stride, b, output, shape, stream);
  if (is(128, 192)) return Launch<2, 192>(a, a_stride, b, output, shape, stream);
  if (is(128, 128)) return Launch<2, 128>(a, a_stride, b, output, shape, stream);
  if (is(128, 64)) return Launch<2, 64>(a, a_stride, b, output, shape, stream);
  if (is(64, 128)) return Launch<1, 128>(a, a_stride, b, output, shape, stream);
  if (is(64, 64)) return Launch<1, 64>(a, a_stride, b, output, shape, stream);
  if (is(64, 32)) return Launch<1, 32>(a, a_stride, b, output, shape, stream);
  return cudaErrorInvalidValue;
}

std::vector<KernelLaunch> TmaLaunches() {
  return {LaunchOf<2, 256>("GemmTmaWgmmaKernel<2, 256>"),
          LaunchOf<2, 224>("GemmTmaWgmmaKernel<2, 224>"),
          LaunchOf<2, 192>("GemmTmaWgmmaKernel<2, 192>"),
          LaunchOf<2, 128>("GemmTmaWgmmaKernel<2, 128>"),
          LaunchOf<2, 64>("GemmTmaWgmmaKernel<2, 64>"),
          LaunchOf<1, 128>("GemmTmaWgmmaKernel<1, 128>"),
          LaunchOf<1, 64>("GemmTmaWgmmaKernel<1, 64>"),
          LaunchOf<1, 32>("GemmTmaWgmmaKernel<1, 32>")};
}

}  // namespace baton
