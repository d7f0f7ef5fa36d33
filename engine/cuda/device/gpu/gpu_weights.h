// A model's weights in memory of a GPU (model_view.h): read from the checkpoint through pinned
// memory, row by row, by the threads of the pool. Made once; the memory goes with it.
#pragma once

#include <memory>
#include <vector>

#include "engine/cpu/loaded_model.h"
#include "engine/cuda/device/device.h"
#include "engine/cuda/model_view.h"
#include "engine/kv/kv_layout.h"

namespace baton {

// Unimplemented: names what a GPU does not compute yet.
absl::Status CheckGpuComputes(const ModelDesc& model, const EngineOptions& options);

class GpuWeights {
 public:
  // `model` has passed CheckGpuComputes. progress: as LoadBackend. ResourceExhausted: the weights
  // do not fit. Unavailable: the device is lost.
  static absl::StatusOr<std::unique_ptr<GpuWeights>> Load(Device& device, const LoadedModel& model,
                                                          const KvLayout& layout,
                                                          void (*progress)(void*, double),
                                                          void* progress_context);
  ~GpuWeights();
  GpuWeights(const GpuWeights&) = delete;
  GpuWeights& operator=(const GpuWeights&) = delete;

  const ModelView& view() const { return view_; }  // its layers are of this object
  int64_t bytes() const { return bytes_; }

 private:
  class Loader;
  explicit GpuWeights(Device& device) : device_(device) {}

  Device& device_;
  std::vector<std::byte*> memory_;
  int64_t bytes_ = 0;
  std::vector<LayerView> layers_;
  ModelView view_;
};

}  // namespace baton
