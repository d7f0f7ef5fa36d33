// The engine on a GPU: device, weights, step kernels, and the backend over them. Made before the
// worker that uses it, and gone after it.
#pragma once

#include <memory>
#include <string>

#include "engine/cpu/loaded_model.h"
#include "engine/cuda/device/device_backend.h"
#include "engine/cuda/device/gpu/gpu_device.h"
#include "engine/cuda/device/gpu/gpu_step_kernels.h"
#include "engine/cuda/device/gpu/gpu_weights.h"

namespace baton {

class GpuEngine {
 public:
  struct Options {
    int index = 0;     // of the GPU, which the plugin has opened
    std::string name;  // of the GPU, for logs
    EngineOptions engine;
    DeviceBackendOptions backend{};
  };
  // api: of the plugin. Reads the weights into the GPU. progress: as LoadBackend. Unimplemented:
  // the model needs what GPUs do not compute yet. ResourceExhausted: it does not fit.
  // FailedPrecondition: a kernel's bits are not those of its reference. Else as LoadBackend.
  static absl::StatusOr<std::unique_ptr<GpuEngine>> Create(const BatonCudaApi& api,
                                                           const Options& options,
                                                           void (*progress)(void*, double),
                                                           void* progress_context);
  GpuEngine(const GpuEngine&) = delete;
  GpuEngine& operator=(const GpuEngine&) = delete;

  GpuDevice& device() { return device_; }
  DeviceBackend& backend() { return *engine_; }
  // The backend itself, for the worker: taken once.
  std::unique_ptr<Backend> TakeBackend() { return std::move(backend_); }

 private:
  GpuEngine(const BatonCudaApi& api, int index) : device_(api, index) {}

  GpuDevice device_;
  LoadedModel model_;
  std::unique_ptr<GpuWeights> weights_;
  std::unique_ptr<GpuStepKernels> kernels_;
  std::unique_ptr<DeviceBackend> backend_;
  DeviceBackend* engine_ = nullptr;
};

}  // namespace baton
