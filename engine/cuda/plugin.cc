// The exported functions of libbaton_cuda.so.
#include <cstdio>
#include <cstring>

#include <cuda_runtime_api.h>

#include "engine/cuda/plugin_abi.h"
#include "engine/cuda/source_id.h"

namespace {

// Kernels are compiled for this architecture alone; its instructions are in no other one.
constexpr int kMajor = 9, kMinor = 0;

template <typename... Values>
void Fail(BatonCudaDevice* device, const char* format, Values... values) {
  std::snprintf(device->error, sizeof device->error, format, values...);
}

bool HasDriver(BatonCudaDevice* device) {
  if (cudaDriverGetVersion(&device->driver_version) != cudaSuccess || device->driver_version == 0) {
    Fail(device,
         "no NVIDIA driver answers on this machine: install driver 580 or newer (CUDA 13.0)");
    return false;
  }
  if (device->driver_version < 13000) {
    Fail(device,
         "the NVIDIA driver is too old, it knows CUDA %d.%d: install driver 580 or newer (CUDA "
         "13.0)",
         device->driver_version / 1000, device->driver_version % 1000 / 10);
    return false;
  }
  return true;
}

}  // namespace

const char* baton_cuda_source_id() { return baton::kCudaSourceId; }

void baton_cuda_open(int32_t index, BatonCudaDevice* device) {
  std::memset(device, 0, sizeof *device);
  if (!HasDriver(device)) return;
  int n_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&n_devices);
  if (error != cudaSuccess || index < 0 || index >= n_devices) {
    Fail(device, "there is no GPU %d: %d can be seen (%s); see nvidia-smi and CUDA_VISIBLE_DEVICES",
         index, n_devices, error == cudaSuccess ? "no error" : cudaGetErrorString(error));
    return;
  }
  cudaDeviceProp properties;
  if (error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    Fail(device, "GPU %d does not tell what it is: %s", index, cudaGetErrorString(error));
    return;
  }
  std::snprintf(device->name, sizeof device->name, "%s", properties.name);
  device->multiprocessors = properties.multiProcessorCount;
  device->shared_bytes = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
  device->cache_bytes = properties.l2CacheSize;
  if (properties.major != kMajor || properties.minor != kMinor) {
    Fail(device,
         "GPU %d, %s, has compute capability %d.%d, and the kernels are for %d.%d alone: use an "
         "H100, H200 or GH200",
         index, properties.name, properties.major, properties.minor, kMajor, kMinor);
    return;
  }
  if (error = cudaSetDevice(index); error != cudaSuccess) {
    Fail(device, "GPU %d cannot be used: %s", index, cudaGetErrorString(error));
    return;
  }
  size_t free_bytes = 0, memory_bytes = 0;
  if (error = cudaMemGetInfo(&free_bytes, &memory_bytes); error != cudaSuccess) {
    Fail(device, "GPU %d does not tell its free memory: %s", index, cudaGetErrorString(error));
    return;
  }
  device->free_bytes = static_cast<int64_t>(free_bytes);
  device->memory_bytes = static_cast<int64_t>(memory_bytes);
}
