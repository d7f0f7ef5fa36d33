// An engine on a device (device.h): submits steps and slices to one stream and answers with fences.
// Kernels compute them (step_kernels.h), of which it knows names and arguments alone. Engine
// thread.
//
// Once the device is lost (lost()), every fence counts as reached and steps have no results.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/device/device_steps.h"
#include "engine/step/backend.h"
#include "engine/step/slice_progress.h"

namespace baton {

struct DeviceBackendOptions {
  int depth = 2;            // steps under way at most
  bool uses_graphs = true;  // false: all steps are launched kernel by kernel, without padding
};

class DeviceBackend : public Backend {
 public:
  // device and model.desc outlive it; what NewArena makes does not. ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<DeviceBackend>> Create(Device& device, DeviceModel model,
                                                               const DeviceBackendOptions& options);

  // Makes what is submitted to the stream later wait for the fence. Any thread. Unavailable: the
  // device is lost or has refused something, and the fence is never reached.
  absl::Status WaitFor(Fence fence, DeviceStream stream) {
    return timeline_.WaitFor(fence, stream);
  }

  const ModelDesc& model() const override { return *model_.desc; }
  const KvLayout& kv_layout() const override { return model_.layout; }
  std::string numerics_id() const override { return model_.numerics_id; }
  uint64_t model_fingerprint() const override { return model_.fingerprint; }
  std::string isa() const override { return model_.unit; }
  StepLimits limits() const override { return model_.limits; }
  WeightMemory weight_memory() const override { return model_.weights; }

  int depth() const override { return options_.depth; }
  Fence submitted() const override { return timeline_.submitted(); }
  bool reached(Fence fence) override { return timeline_.reached(fence); }
  void WakeAt(Fence fence, const std::function<void()>& wake) override;
  void StopWaking() override { timeline_.StopWaking(); }
  std::optional<std::string> lost() const override { return timeline_.lost(); }

  absl::StatusOr<std::unique_ptr<KvArena>> NewArena(int64_t bytes) override;
  void SetPages(const KvPages& pages) override;

  void Begin(const StepBatch& batch) override;
  void RunLayers(int from, int to) override;
  void Sample(std::span<const RowSampling> rows, StepOutput* out) override;
  void Score(const ScoredRows& rows, std::span<PromptLogprob> out) override;

  void BeginSlice(const StepBatch& batch) override;
  void ProjectSlice(int layer, int from, int to) override;
  void AttendSlice(int layer, int from, int to, int end_key) override;
  void FinishSlice(int layer, int from, int to) override;
  void SampleSlice(const RowSampling& row, StepOutput* out) override;

  // Block the calling thread.
  std::span<const float> logits(int i) const override;
  std::span<const float> ScoredLogits(int from, int to) override;
  std::span<const float> slice_logits() const override;

 private:
  DeviceBackend(Device& device, DeviceModel model, const DeviceBackendOptions& options);

  Device& device_;
  const DeviceModel model_;
  const DeviceBackendOptions options_;
  // Made once; behind a pointer, because reading logits is a submission.
  const std::unique_ptr<DeviceSteps> steps_;
  DeviceTimeline& timeline_;

  // The step submitted last.
  int n_logits_ = 0, n_scored_ = 0, next_layer_ = 0;
  bool is_sampled_ = true;
  std::vector<Fence> sampled_;  // of steps that may be under way
  SliceProgress progress_;
  mutable std::vector<float> step_copy_, scored_copy_, slice_copy_;  // of logits
};

}  // namespace baton
