// The number of multiprocessors of the calling thread's device, by which kernels are chosen.
#pragma once

#include <cuda_runtime_api.h>

namespace baton {

inline cudaError_t CountMultiprocessors(int* count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace baton
