// Step kernels on a GPU (step_kernels.h): the plugin computes layers and logits, and samples rows
// that need temperature alone. All other rows, and log-probabilities of prompts, are sampled by the
// host's Sampler between two copies, with the stream standing still meanwhile: slower, and the same
// in every bit.
//
// Made and added by the thread that makes the engine; kernels run on the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/cuda/device/gpu/gpu_device.h"
#include "engine/cuda/device/step_kernels.h"
#include "engine/cuda/model_view.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"

namespace baton {

class GpuStepKernels {
 public:
  // Takes memory for activations and adds the kernels to the device, which outlives it, as do the
  // weights of `view` and the pool. pool: samples on the host, and does nothing else; null: one
  // thread does. ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<GpuStepKernels>> Create(GpuDevice& device,
                                                                const ModelView& view,
                                                                ComputePool* pool);
  ~GpuStepKernels();  // nothing of it is under way
  GpuStepKernels(const GpuStepKernels&) = delete;
  GpuStepKernels& operator=(const GpuStepKernels&) = delete;

 private:
  // Memory of the host for one launch, used again when its event is reached.
  struct Staging {
    std::byte* at = nullptr;
    int64_t bytes = 0;
    DeviceEvent end{};
  };
  // Shared with the calls that the driver holds: those of a lost device may come after the kernels
  // and the device are gone.
  struct Host {
    explicit Host(ComputePool* pool) : sampler(pool) {}
    std::mutex mutex;  // held while a call runs
    bool is_over = false;
    Sampler sampler;  // of the driver's thread that the stream waits for
  };
  static constexpr int kRowsAtOnce = Backend::kScoredAtOnce;  // of logits on the host

  GpuStepKernels(GpuDevice& device, const ModelView& view, ComputePool* pool);
  absl::Status Reserve(const ModelView& view);
  void AddKernels();
  template <typename Arguments>
  void Add(absl::Status (GpuStepKernels::*kernel)(DeviceStream, void*, const Arguments&));

  absl::Status Begin(DeviceStream stream, void* on, const BeginArguments& a);
  absl::Status Layer(DeviceStream stream, void* on, const LayerArguments& a);
  absl::Status ScoredLogits(DeviceStream stream, void* on, const ScoredLogitsArguments& a);
  absl::Status Sample(DeviceStream stream, void* on, const SampleArguments& a);
  absl::Status Score(DeviceStream stream, void* on, const ScoreArguments& a);
  absl::Status BeginSlice(DeviceStream stream, void* on, const BeginSliceArguments& a);
  absl::Status SlicePart(DeviceStream stream, void* on, const SlicePartArguments& a);

  // True if the plugin samples the row.
  bool IsPlain(const RowSampling& row) const;
  // Samples rows [from, to) on the host: their logits come, records and tokens go.
  absl::Status SampleOnHost(DeviceStream stream, const SampleArguments& a, int from, int to,
                            std::byte* records, int32_t* tokens, std::byte* results);
  absl::StatusOr<Staging*> Take(int64_t bytes);
  // Calls `call` when the stream has come so far, unless the device is lost or the kernels are
  // gone.
  absl::Status OnHost(DeviceStream stream, std::function<void(Sampler&)> call);

  GpuDevice& device_;
  const int64_t vocab_;
  void* model_ = nullptr;  // the plugin's
  std::byte* scratch_ = nullptr;
  std::byte* logits_ = nullptr;  // (kRowsAtOnce, vocab) pinned
  std::vector<std::unique_ptr<Staging>> staging_;
  const std::shared_ptr<Host> host_;
};

}  // namespace baton
