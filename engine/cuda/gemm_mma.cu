// Starts the kernels of gemm_mma.cuh.
#include "engine/cuda/gemm_mma.cuh"

#include "engine/cuda/gemm.h"

namespace baton {

cudaError_t GemmByMma(const uint16_t* a, int a_stride, const uint16_t* b, const GemmOutput& output,
                      GemmShape shape, cudaStream_t stream) {
  if (!IsProduct(a_stride, output, shape)) return cudaErrorInvalidValue;
  const dim3 grid((shape.n + kBlockColumns - 1) / kBlockColumns, (shape.m + 15) / 16);
  GemmMmaKernel<<<grid, kWarps * 32, 0, stream>>>(a, a_stride, b, output, shape);
  return cudaGetLastError();
}

std::vector<KernelLaunch> MmaLaunches() { return {{"GemmMmaKernel", kWarps * 32, 0}}; }

}  // namespace baton
