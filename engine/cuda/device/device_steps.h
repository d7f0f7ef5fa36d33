// Submits steps and slices to a device: copies their metadata, launches their kernels, one by one
// or as graphs, and brings results back. DeviceBackend's; engine thread.
//
// A step goes to the device as one metadata block. Steps of rows only are filled up with padding to
// the next bucket and launched as a graph, which is captured when its bucket comes first. Tokens
// are fed on the device: those that a step samples stay there for the next.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/cuda/device/device.h"
#include "engine/cuda/device/device_timeline.h"
#include "engine/cuda/device/metadata_block.h"
#include "engine/cuda/device/slot_pool.h"
#include "engine/cuda/device/step_kernels.h"
#include "engine/step/backend.h"

namespace baton {

// The rows that a step of `rows` rows is filled up to; 0: none, for it is beyond the largest
// bucket, or its bucket is beyond max_rows.
int BucketOf(int rows, int max_rows);

class DeviceSteps {
 public:
  // Names logits on the device: of the step's rows, its scored rows, the slice's last row.
  enum class Logits { kStep, kScored, kSlice };

  // Both outlive it. uses_graphs: false: all steps are launched kernel by kernel, without padding.
  DeviceSteps(Device& device, const DeviceModel& model, bool uses_graphs);
  ~DeviceSteps();  // blocks until what is under way is done
  absl::Status Reserve();

  DeviceTimeline& timeline() { return timeline_; }
  DeviceStream compute() const { return compute_; }
  // Pages of the device; behind them is one more, which takes what padding writes.
  void SetPages(const KvPages& pages);
  bool has_pages() const { return pages_.base != nullptr; }

  void Begin(const StepBatch& batch);
  void RunLayers(int from, int to);
  void Sample(std::span<const RowSampling> rows, StepOutput* out);
  void ScoreLogits(int from, int to);  // of scored rows, for Score or Read
  void Score(const ScoredRows& rows, std::span<PromptLogprob> out);
  void BeginSlice(const StepBatch& batch);
  void RunPart(SlicePartArguments part, bool wants_logits);
  void SampleSlice(const RowSampling& row, StepOutput* out);
  // Copies (rows, vocab) logits to the host; blocks.
  void Read(Logits which, int rows, std::vector<float>* to);

 private:
  using Slot = SlotPool::Slot;
  struct GraphKey {
    int rows, from, to;
    auto operator<=>(const GraphKey&) const = default;
  };
  // Rows and layers of the step submitted last.
  struct Step {
    BlockCounts counts{};  // with padding
    int bucket = 0;        // 0: launched kernel by kernel
  };

  // Submits what `call` gives to the device, as one fence; nothing once the device is lost.
  template <typename Call>
  void Submit(const Call& call);
  absl::Status Upload(const StepBatch& batch, int padding, std::byte* to);
  absl::Status LaunchLayers(int from, int to);
  absl::Status LaunchGraph(int from, int to);
  absl::Status SampleRows(Logits which, std::span<const RowSampling> rows, StepOutput* out);
  absl::Status LaunchScoredLogits(int from, int to);
  absl::Status ScoreRows(const ScoredRows& rows, std::span<PromptLogprob> out);
  // Copies memory of the device to the host: read(bytes on the host) runs when the submission is
  // reached, unless the device is lost. results: the slot of `from`, given back then; may be null.
  absl::Status Return(const std::byte* from, int64_t bytes,
                      std::function<void(const std::byte* at)> read, Slot* results = nullptr);
  float* At(Logits which) const { return logits_[static_cast<size_t>(which)]; }

  Device& device_;
  const DeviceModel& model_;
  const bool uses_graphs_;
  const DeviceStream compute_;
  DeviceTimeline timeline_;
  SlotPool pinned_, results_;
  std::vector<std::byte*> fixed_;  // memory of the device, to be freed
  std::byte *block_ = nullptr, *slice_block_ = nullptr;
  int32_t* sampled_ = nullptr;
  float* logits_[3] = {};
  KvPages pages_;
  KernelState state_;
  std::map<GraphKey, DeviceGraph> graphs_;
  Step step_;
  std::function<void()> deliver_;  // of the submission that is being made
};

}  // namespace baton
