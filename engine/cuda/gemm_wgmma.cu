// Starts the kernels of gemm_wgmma.cuh.
#include "engine/cuda/gemm_wgmma.cuh"

#include "engine/cuda/gemm.h"

namespace baton {
namespace {

template <int kTileN>
cudaError_t Launch(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                   GemmShape shape, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      GemmWgmmaKernel<kTileN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kTileN>);
  if (error != cudaSuccess) return error;
  const dim3 grid((shape.n + kTileN - 1) / kTileN, (shape.m + kTileM - 1) / kTileM);
  GemmWgmmaKernel<kTileN>
      <<<grid, kThreads, kSharedBytes<kTileN>, stream>>>(a, a_stride, b, output, shape);
  return cudaGetLastError();
}

}  // namespace

cudaError_t GemmByWgmma(const uint16_t* a, int a_stride, const uint16_t* b,
                        const GemmOutput& output, GemmShape shape, int tile_n,
                        cudaStream_t stream) {
  if (!IsProduct(a_stride, output, shape) || (tile_n < 16 && IsGated(output.end)))
    return cudaErrorInvalidValue;
  switch (tile_n) {
    case 8:
      return Launch<8>(a, a_stride, b, output, shape, stream);
    case 64:
      return Launch<64>(a, a_stride, b, output, shape, stream);
    case 128:
      return Launch<128>(a, a_stride, b, output, shape, stream);
    case 256:
      return Launch<256>(a, a_stride, b, output, shape, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

std::vector<KernelLaunch> WgmmaLaunches() {
  return {{"GemmWgmmaKernel<8>", kThreads, kSharedBytes<8>},
          {"GemmWgmmaKernel<64>", kThreads, kSharedBytes<64>},
          {"GemmWgmmaKernel<128>", kThreads, kSharedBytes<128>},
          {"GemmWgmmaKernel<256>", kThreads, kSharedBytes<256>}};
}

}  // namespace baton
