// Step kernels of an emulated device (step_kernels.h): the forward pass of a CPU engine, on pages
// of the device, and the host's sampler. So bits and numerics id are that engine's. Kernels read
// their metadata, fed tokens, pages and logits in memory of the device, plane by plane, and say so
// (KernelMemory); activations are the engine's own. On the thread that executes the device's work.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/cuda/device/emulated/emulated_device.h"
#include "engine/cuda/device/metadata_block.h"
#include "engine/cuda/device/step_kernels.h"
#include "engine/kv/kv_pages.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"

namespace baton {

class CpuStepKernels {
 public:
  // engine: of the CPU, of depth 1.
  explicit CpuStepKernels(std::unique_ptr<Backend> engine);
  CpuStepKernels(const CpuStepKernels&) = delete;
  CpuStepKernels& operator=(const CpuStepKernels&) = delete;

  DeviceModel model() const;
  void AddTo(OperationRunner& runner);  // which this outlives

 private:
  // A run of rows whose pages a kernel touches.
  struct Rows {
    const StepBatch& batch;
    int from, to;
  };

  void Begin(KernelMemory& memory, const BeginArguments& a);
  void Layer(KernelMemory& memory, const LayerArguments& a);
  void ScoredLogits(KernelMemory& memory, const ScoredLogitsArguments& a);
  void Sample(KernelMemory& memory, const SampleArguments& a);
  void Score(KernelMemory& memory, const ScoreArguments& a);
  void BeginSlice(KernelMemory& memory, const BeginSliceArguments& a);
  void SlicePart(KernelMemory& memory, const SlicePartArguments& a);

  std::unique_ptr<BlockStep> ReadBlock(KernelMemory& memory, const std::byte* block);
  void TakeFrames(const BlockStep& block);
  bool Feed(KernelMemory& memory, const int32_t* sampled, std::span<int32_t> tokens);
  void Bind(KernelMemory& memory, const KernelState& state);
  void WritePlanes(KernelMemory& memory, int layer, const Rows& rows);
  void ReadPlanes(KernelMemory& memory, int layer, const Rows& rows);

  const std::unique_ptr<Backend> engine_;
  const int64_t vocab_;
  Sampler sampler_;
  KvPages pages_;                // of the device
  std::vector<int32_t> frames_;  // (page ids, layers) as the latest block with the page says
  std::unique_ptr<BlockStep> step_, slice_;
};

}  // namespace baton
