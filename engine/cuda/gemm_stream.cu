// Starts the kernels of gemm_stream.cuh.
#include "engine/cuda/gemm_stream.cuh"

#include <algorithm>

#include "engine/cuda/gemm.h"
#include "engine/cuda/gemm_launch.h"

namespace baton {
namespace {

template <int kRows, int kWarps>
cudaError_t Launch(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                   GemmShape shape, cudaStream_t stream) {
  using Tile = StreamTile<kRows, kWarps>;
  TensorMap a_map, b_map;
  int multiprocessors = 0;
  cudaError_t error = EncodeBoxes({a, shape.m, shape.k, a_stride}, kRows, Tile::kDepth, &a_map);
  if (error == cudaSuccess)
    error = EncodeBoxes({b, shape.n, shape.k, shape.k}, Tile::kWeights, Tile::kDepth, &b_map);
  if (error == cudaSuccess) error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  const int64_t n_weight_tiles = (shape.n + Tile::kWeights - 1) / Tile::kWeights;
  const int64_t n_tiles = n_weight_tiles * ((shape.m + kRows - 1) / kRows);
  const int64_t n_blocks = std::min(n_tiles, int64_t{multiprocessors} * Tile::kBlocks);
  return LaunchGemm(GemmStreamMmaKernel<kRows, kWarps>,
                    {n_blocks, Tile::kThreads, Tile::kSharedBytes}, a_map, b_map, output, shape,
                    stream);
}

template <int kRows, int kWarps>
KernelLaunch LaunchOf(const char* name) {
  using Tile = StreamTile<kRows, kWarps>;
  return {name, Tile::kThreads, Tile::kSharedBytes};
}

}  // namespace

cudaError_t GemmByStream(const uint16_t* a, int a_stride, const uint16_t* b,
                         const GemmOutput& output, GemmShape shape, StreamTiles tiles,
                         cudaStream_t stream) {
  if (!IsProduct(a_stride, output, shape)) return cudaErrorInvalidValue;
  const auto is = [&](int rows, int warps) { return tiles.rows == rows && tiles.warps == warps; };
  if (is(8, 1)) return Launch<8, 1>(a, a_stride, b, output, shape, stream);
  if (is(8, 2)) return Launch<8, 2>(a, a_stride, b, output, shape, stream);
  if (is(8, 4)) return Launch<8, 4>(a, a_stride, b, output, shape, stream);
  if (is(16, 1)) return Launch<16, 1>(a, a_stride, b, output, shape, stream);
  if (is(16, 2)) return Launch<16, 2>(a, a_stride, b, output, shape, stream);
  if (is(16, 4)) return Launch<16, 4>(a, a_stride, b, output, shape, stream);
  if (is(32, 2)) return Launch<32, 2>(a, a_stride, b, output, shape, stream);
  if (is(32, 4)) return Launch<32, 4>(a, a_stride, b, output, shape, stream);
  return cudaErrorInvalidValue;
}

std::vector<KernelLaunch> StreamLaunches() {
  return {
      LaunchOf<8, 1>("GemmStreamMmaKernel<8, 1>"),   LaunchOf<8, 2>("GemmStreamMmaKernel<8, 2>"),
      LaunchOf<8, 4>("GemmStreamMmaKernel<8, 4>"),   LaunchOf<16, 1>("GemmStreamMmaKernel<16, 1>"),
      LaunchOf<16, 2>("GemmStreamMmaKernel<16, 2>"), LaunchOf<16, 4>("GemmStreamMmaKernel<16, 4>"),
      LaunchOf<32, 2>("GemmStreamMmaKernel<32, 2>"), LaunchOf<32, 4>("GemmStreamMmaKernel<32, 4>")};
}

}  // namespace baton
