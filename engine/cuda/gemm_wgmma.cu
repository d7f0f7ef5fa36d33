// Starts the kernels of gemm_wgmma.cuh.
#include "engine/cuda/gemm_wgmma.cuh"

#include "engine/cuda/gemm.h"

namespace baton {
namespace {

template <int kTileN>
cudaError_t Launch(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape,
                   cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      GemmWgmmaKernel<kTileN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kTileN>);
  if (error != cudaSuccess) return error;
  const dim3 grid((shape.n + kTileN - 1) / kTileN, (shape.m + kTileM - 1) / kTileM);
  GemmWgmmaKernel<kTileN><<<grid, kThreads, kSharedBytes<kTileN>, stream>>>(a, b, c, shape);
  return cudaGetLastError();
}

}  // namespace

cudaError_t GemmByWgmma(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape, int tile_n,
                        cudaStream_t stream) {
  if (shape.m < 1 || shape.n < 1 || shape.k < kTileK || shape.k % kTileK != 0)
    return cudaErrorInvalidValue;
  switch (tile_n) {
    case 8:
      return Launch<8>(a, b, c, shape, stream);
    case 64:
      return Launch<64>(a, b, c, shape, stream);
    case 128:
      return Launch<128>(a, b, c, shape, stream);
    case 256:
      return Launch<256>(a, b, c, shape, stream);
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
