// Starts kernels that use the tensor memory accelerator: tensor maps as parameters, clusters, and a
// begin before the kernel before in the stream has ended (WaitForKernelBefore in tma.cuh). All that
// is valid while a stream is captured.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "engine/cuda/gemm_output.h"
#include "engine/cuda/gemm_shape.h"
#include "engine/cuda/tensor_map_encoding.h"

namespace baton {

using MapKernel = void (*)(TensorMap a_map, TensorMap b_map, GemmOutput output, GemmShape shape);

struct MapLaunch {
  int64_t n_blocks;
  int threads;
  int shared_bytes;
  int cluster = 1;
};

inline cudaError_t LaunchWithMaps(MapKernel kernel, const MapLaunch& launch, const TensorMap& a_map,
                                  const TensorMap& b_map, const GemmOutput& output, GemmShape shape,
                                  cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, launch.shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(launch.cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.n_blocks));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = launch.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, a_map, b_map, output, shape);
}

// Of the current device.
inline cudaError_t CountMultiprocessors(int* count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace baton
