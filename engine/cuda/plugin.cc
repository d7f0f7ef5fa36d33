// The exported functions of libbaton_cuda.so.
#include <cstdio>
#include <cstring>

#include <cuda_runtime_api.h>

#include "engine/cuda/device_fault.h"
#include "engine/cuda/plugin_abi.h"
#include "engine/cuda/source_id.h"

namespace {

// Copies a text into a field, cut if it is too long.
template <size_t kSize>
void Write(char (&field)[kSize], const std::string& text) {
  std::snprintf(field, kSize, "%s", text.c_str());
}

// Fills `device`; returns what keeps it from serving.
std::string Describe(int32_t index, BatonCudaDevice* device) {
  baton::DeviceFacts facts{.index = index, .driver_version = 0};
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  device->driver_version = facts.driver_version;
  if (std::string fault = FaultOf(facts); !fault.empty()) return fault;

  cudaError_t error = cudaGetDeviceCount(&facts.n_devices);
  if (error != cudaSuccess) {
    facts.n_devices = 0;
    facts.cuda_words = cudaGetErrorString(error);
  }
  if (std::string fault = FaultOf(facts); !fault.empty()) return fault;

  const std::string gpu = "GPU " + std::to_string(index);
  cudaDeviceProp properties;
  if (error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return gpu + " does not tell what it is: " + cudaGetErrorString(error);
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  Write(device->name, facts.name);
  device->multiprocessors = properties.multiProcessorCount;
  device->shared_bytes = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
  device->cache_bytes = properties.l2CacheSize;
  if (std::string fault = FaultOf(facts); !fault.empty()) return fault;

  if (error = cudaSetDevice(index); error != cudaSuccess)
    return gpu + " cannot be used: " + cudaGetErrorString(error) +
           "; see nvidia-smi for who has it";
  size_t free_bytes = 0, memory_bytes = 0;
  if (error = cudaMemGetInfo(&free_bytes, &memory_bytes); error != cudaSuccess)
    return gpu + " does not tell its free memory: " + cudaGetErrorString(error);
  device->free_bytes = static_cast<int64_t>(free_bytes);
  device->memory_bytes = static_cast<int64_t>(memory_bytes);
  return "";
}

}  // namespace

const char* baton_cuda_source_id() { return baton::kCudaSourceId; }

void baton_cuda_open(int32_t index, BatonCudaDevice* device) {
  std::memset(device, 0, sizeof *device);
  Write(device->error, Describe(index, device));
}
