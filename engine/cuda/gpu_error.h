// The first error of CUDA's calls, returned from a function of them.
#pragma once

#include <cuda_runtime_api.h>

#define RETURN_IF_GPU_ERROR(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error
