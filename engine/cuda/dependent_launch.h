// Starts kernels that begin before the kernel before them in the stream has ended and wait for it
// themselves (dependent_launch.cuh). Valid while a stream is captured. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime_api.h>

namespace baton {

struct DependentGrid {
  int64_t x;
  int threads;  // of a block
  int64_t shared_bytes = 0;
  int64_t y = 1;
};

template <typename... Parameters>
cudaError_t LaunchDependent(void (*kernel)(Parameters...), const DependentGrid& grid,
                            cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace baton
