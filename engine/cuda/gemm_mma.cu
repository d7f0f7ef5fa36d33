// Starts the kernels of gemm_mma.cuh.
#include "engine/cuda/gemm_mma.cuh"

#include "engine/cuda/gemm.h"

namespace baton {

cudaError_t GemmByMma(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape,
                      cudaStream_t stream) {
  if (shape.m < 1 || shape.n < 1 || shape.k < 64 || shape.k % 64 != 0) return cudaErrorInvalidValue;
  const dim3 grid((shape.n + kBlockColumns - 1) / kBlockColumns, (shape.m + 15) / 16);
  GemmMmaKernel<<<grid, kWarps * 32, 0, stream>>>(a, b, c, shape);
  return cudaGetLastError();
}

std::vector<KernelLaunch> MmaLaunches() { return {{"GemmMmaKernel", kWarps * 32, 0}}; }

}  // namespace baton
