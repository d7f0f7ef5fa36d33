// Starts the kernels of gemm_tma.cuh.
#include "engine/cuda/gemm_tma.cuh"

#include <algorithm>

#include "engine/cuda/early_launch.h"
#include "engine/cuda/gemm.h"

namespace baton {
namespace {

template <int kGroups, int kTileN, int kCluster>
cudaError_t Launch(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                   GemmShape shape, cudaStream_t stream) {
  using Tile = TmaTile<kGroups, kTileN>;
  TensorMap a_map, b_map;
  int multiprocessors = 0;
  cudaError_t error = EncodeBoxes({a, shape.m, shape.k, a_stride}, Tile::kRows, 1, &a_map);
  if (error == cudaSuccess)
    error = EncodeBoxes({b, shape.n, shape.k, shape.k}, kTileN / kCluster, 1, &b_map);
  if (error == cudaSuccess) error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  const int64_t n_row_tiles = (shape.m + kCluster * Tile::kRows - 1) / (kCluster * Tile::kRows);
  const int64_t n_tiles = n_row_tiles * ((shape.n + kTileN - 1) / kTileN);
  const int64_t n_at_once = multiprocessors * Tile::kBlocks / kCluster;
  return LaunchWithMaps(
      GemmTmaWgmmaKernel<kGroups, kTileN, kCluster>,
      {std::min(n_tiles, n_at_once) * kCluster, Tile::kThreads, Tile::kSharedBytes, kCluster},
      a_map, b_map, output, shape, stream);
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
  const auto is = [&](int rows, int columns, int cluster) {
    return tiles.rows == rows && tiles.columns == columns && tiles.cluster == cluster;
  };
  if (is(128, 256, 2)) return Launch<2, 256, 2>(a, a_stride, b, output, shape, stream);
  if (is(128, 256, 1)) return Launch<2, 256, 1>(a, a_stride, b, output, shape, stream);
  if (is(128, 192, 2)) return Launch<2, 192, 2>(a, a_stride, b, output, shape, stream);
  if (is(128, 192, 1)) return Launch<2, 192, 1>(a, a_stride, b, output, shape, stream);
  if (is(128, 128, 1)) return Launch<2, 128, 1>(a, a_stride, b, output, shape, stream);
  if (is(64, 128, 1)) return Launch<1, 128, 1>(a, a_stride, b, output, shape, stream);
  if (is(64, 64, 1)) return Launch<1, 64, 1>(a, a_stride, b, output, shape, stream);
  return cudaErrorInvalidValue;
}

std::vector<KernelLaunch> TmaLaunches() {
  return {LaunchOf<2, 256>("GemmTmaWgmmaKernel<2, 256, 2>"),
          LaunchOf<2, 256>("GemmTmaWgmmaKernel<2, 256, 1>"),
          LaunchOf<2, 192>("GemmTmaWgmmaKernel<2, 192, 2>"),
          LaunchOf<2, 192>("GemmTmaWgmmaKernel<2, 192, 1>"),
          LaunchOf<2, 128>("GemmTmaWgmmaKernel<2, 128, 1>"),
          LaunchOf<1, 128>("GemmTmaWgmmaKernel<1, 128, 1>"),
          LaunchOf<1, 64>("GemmTmaWgmmaKernel<1, 64, 1>")};
}

}  // namespace baton
