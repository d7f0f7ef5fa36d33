// Starts the kernels of matrix products that stay: tensor maps as parameters, and a begin before
// the kernel before in the stream has ended (dependent_launch.h). Valid while a stream is captured.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "engine/cuda/dependent_launch.h"
#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/multiprocessors.h"
#include "engine/cuda/tensor_map_encoding.h"

namespace baton {

using GemmKernel = void (*)(TensorMap a_map, TensorMap b_map, GemmOutput output, GemmShape shape);

inline cudaError_t LaunchGemm(GemmKernel kernel, const DependentGrid& grid, const TensorMap& a_map,
                              const TensorMap& b_map, const GemmOutput& output, GemmShape shape,
                              cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
  if (error != cudaSuccess) return error;
  return LaunchDependent(kernel, grid, stream, a_map, b_map, output, shape);
}

}  // namespace baton
