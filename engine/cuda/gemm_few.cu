// Starts the kernels of gemm_few.cuh.
#include "engine/cuda/gemm_few.cuh"

#include "engine/cuda/gemm.h"

namespace baton {
namespace {

template <int kTileM>
cudaError_t Launch(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                   GemmShape shape, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(GemmFewMmaKernel<kTileM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kFewSharedBytes<kTileM>);
  if (error != cudaSuccess) return error;
  const dim3 grid((shape.n + kWeightRows - 1) / kWeightRows, (shape.m + kTileM - 1) / kTileM);
  GemmFewMmaKernel<kTileM>
      <<<grid, kFewThreads, kFewSharedBytes<kTileM>, stream>>>(a, a_stride, b, output, shape);
  return cudaGetLastError();
}

}  // namespace

cudaError_t GemmOfFewRows(const uint16_t* a, int a_stride, const uint16_t* b,
                          const GemmOutput& output, GemmShape shape, cudaStream_t stream) {
  if (!IsProduct(a_stride, output, shape)) return cudaErrorInvalidValue;
  if (shape.m <= 8) return Launch<8>(a, a_stride, b, output, shape, stream);
  if (shape.m <= 16) return Launch<16>(a, a_stride, b, output, shape, stream);
  if (shape.m <= 32) return Launch<32>(a, a_stride, b, output, shape, stream);
  return Launch<64>(a, a_stride, b, output, shape, stream);
}

std::vector<KernelLaunch> FewLaunches() {
  return {{"GemmFewMmaKernel<8>", kFewThreads, kFewSharedBytes<8>},
          {"GemmFewMmaKernel<16>", kFewThreads, kFewSharedBytes<16>},
          {"GemmFewMmaKernel<32>", kFewThreads, kFewSharedBytes<32>},
          {"GemmFewMmaKernel<64>", kFewThreads, kFewSharedBytes<64>}};
}

}  // namespace baton
