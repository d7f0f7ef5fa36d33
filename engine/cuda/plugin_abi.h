// Exports of libbaton_cuda.so: C functions and plain structs, so that no C++ type and no
// exception crosses between it and the binary. Both are built of the same sources; the loader
// compares baton_cuda_source_id before it calls anything else (engine/cuda/plugin_loader.h).
#pragma once

#include <cstdint>

extern "C" {

// A GPU, or why it cannot serve.
struct BatonCudaDevice {
  char name[256];
  int32_t driver_version;  // of CUDA, as 13000 for 13.0
  int32_t multiprocessors;
  int32_t shared_bytes;  // of a block at most
  int64_t cache_bytes;   // L2
  int64_t memory_bytes;
  int64_t free_bytes;
  char error[512];  // what is wrong and what to change; empty: the device can serve
};

const char* baton_cuda_source_id();

// Makes device `index` the calling thread's and describes it. Fills `device` in any case.
void baton_cuda_open(int32_t index, BatonCudaDevice* device);

}  // extern "C"
