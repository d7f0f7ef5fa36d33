// Exports of libbaton_cuda.so: C functions and plain structs, so that no C++ type and no
// exception crosses between it and the binary. Both are built of the same sources; the loader
// compares baton_cuda_source_id before it calls anything else (engine/cuda/plugin_loader.h).
#pragma once

#include <cstdint>

#include "engine/cuda/model_view.h"

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

// Functions of models on a device (engine/cuda/step_model.h). Errors: as those of a device.
struct BatonCudaModelApi {
  int32_t (*create)(const baton::ModelView* view, void** model);
  void (*remove)(void* model);
  // Compares kernels with their references (engine/cuda/self_test.h); fault: (size) what differs.
  int32_t (*test)(const baton::ModelView* view, char* fault, int32_t size);
  int64_t (*bytes)(void* model);  // of the GPU, beside the weights
  int32_t (*begin)(void* model, const void* block, const int32_t* sampled,
                   const baton::StepCounts* counts, void* kv, void* stream);
  int32_t (*layer)(void* model, int32_t layer, float* logits, void* stream);
  int32_t (*scored_logits)(void* model, int32_t from, int32_t to, float* logits, void* stream);
  int32_t (*begin_slice)(void* model, const void* block, const baton::StepCounts* counts, void* kv,
                         void* stream);
  int32_t (*project_slice)(void* model, int32_t layer, int32_t from, int32_t to, void* stream);
  int32_t (*finish_slice)(void* model, int32_t layer, int32_t from, int32_t to, float* logits,
                          void* stream);
  // engine/cuda/sample.h; rows is a SampleRowArguments (n_rows).
  int64_t (*sample_scratch_bytes)(int32_t max_rows, int32_t vocab);
  int32_t (*sample)(const float* logits, int32_t n_rows, int32_t vocab, const void* rows,
                    void* scratch, void* results, int32_t* sampled, void* stream);
};

// Functions of a device (engine/cuda/device/device.h). All but `words` return a cudaError_t, 0 for
// success; each is for the device that the calling thread has selected. Streams, events and graphs
// are CUDA's own.
struct BatonCudaApi {
  const char* (*words)(int32_t error);
  int32_t (*select)(int32_t index);

  int32_t (*allocate)(int64_t bytes, void** memory);
  int32_t (*allocate_pinned)(int64_t bytes, void** memory);
  int32_t (*free)(void* memory);
  int32_t (*free_pinned)(void* memory);
  int32_t (*memory)(int64_t* free_bytes, int64_t* total_bytes);

  int32_t (*new_stream)(void** stream);
  int32_t (*delete_stream)(void* stream);
  int32_t (*new_event)(void** event);
  int32_t (*delete_event)(void* event);
  int32_t (*record)(void* event, void* stream);
  int32_t (*wait)(void* stream, void* event);
  int32_t (*query)(void* event, int32_t* is_reached);
  int32_t (*synchronize)(void* event);
  // Calls call(argument) once, on a thread of the driver, even if the device is lost meanwhile.
  int32_t (*notify)(void* stream, void (*call)(void*), void* argument);

  int32_t (*copy)(void* stream, void* to, const void* from, int64_t bytes);
  int32_t (*fill)(void* stream, void* to, int32_t value, int64_t bytes);

  int32_t (*begin_capture)(void* stream);
  int32_t (*end_capture)(void* stream, void** graph);
  int32_t (*launch_graph)(void* stream, void* graph);
  int32_t (*delete_graph)(void* graph);

  BatonCudaModelApi model;
};

const char* baton_cuda_source_id();

// Makes device `index` the calling thread's and describes it. Fills `device` in any case.
void baton_cuda_open(int32_t index, BatonCudaDevice* device);

const BatonCudaApi* baton_cuda_api();

}  // extern "C"
