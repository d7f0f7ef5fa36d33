// The forward pass on a GPU: puts the kernels of steps and slices into a stream, layer by layer, as
// ForwardPass does on the CPU. Nothing here waits for the GPU, and nothing depends on what a block
// says but its counts, so that a graph may capture it.
//
// One thread at a time, whose device is current. Functions return the first error of a launch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/attention.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/model_view.h"
#include "engine/cuda/rows.h"

namespace baton {

class StepModel {
 public:
  // Takes memory of the GPU for activations. The weights outlive it.
  static cudaError_t Create(const ModelView& view, std::unique_ptr<StepModel>* made);
  ~StepModel();
  int64_t bytes() const { return bytes_; }  // of activations
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  // ---- steps ----

  // block: of the step, stays as it is until the step is computed. sampled: tokens that may be fed.
  cudaError_t Begin(const int32_t* block, const int32_t* sampled, StepCounts counts, uint8_t* kv,
                    cudaStream_t stream);
  // The last layer writes (n_logits, vocab) logits.
  cudaError_t Layer(int layer, float* logits, cudaStream_t stream);
  // (to - from, vocab) logits of the scored rows [from, to) of the step.
  cudaError_t ScoredLogits(int from, int to, float* logits, cudaStream_t stream);

  // ---- slices ----

  cudaError_t BeginSlice(const int32_t* block, StepCounts counts, uint8_t* kv, cudaStream_t stream);
  // Computes rows [from, to), at most max_step_rows.
  cudaError_t ProjectSlice(int layer, int from, int to, cudaStream_t stream);
  // logits: (vocab) of the slice's row with logits, not null in its last part alone.
  cudaError_t FinishSlice(int layer, int from, int to, float* logits, cudaStream_t stream);

 private:
  // A step or slice: its block and its rows.
  struct Block {
    const int32_t* at = nullptr;
    StepCounts counts;
    uint8_t* kv = nullptr;
    StepRowsView rows;
    BfRows x, q;
    AttentionWork work;
  };

  explicit StepModel(const ModelView& view);
  cudaError_t Reserve();
  template <typename T>
  cudaError_t Allocate(int64_t n, T** memory);
  cudaError_t Ask(int rows, Block* block);

  AttentionShape ShapeOf(const LayerView& layer) const;
  KvPlaneView PlaneOf(const Block& block, const LayerView& layer) const;
  NormArguments Of(const NormView& norm) const;
  cudaError_t EmbedRows(const Block& block, int from, int to, cudaStream_t stream);
  cudaError_t Project(const Block& block, int layer, int from, int to, cudaStream_t stream);
  cudaError_t Finish(const Block& block, const AttentionRange& range, int layer,
                     cudaStream_t stream);
  cudaError_t AddMlp(const LayerView& layer, BfRows x, int n, const NormView& norm,
                     const GemmOutput& output, cudaStream_t stream);
  cudaError_t AddNormed(const NormView& norm, int n, BfRows x, cudaStream_t stream);
  cudaError_t Logits(BfRows x, const int32_t* rows, int n, float* logits, cudaStream_t stream);

  ModelView view_;
  std::vector<LayerView> layers_;
  std::vector<void*> memory_;
  int64_t bytes_ = 0;
  Block step_, slice_;
  BfRows normed_, qkv_, attended_, mlp_, branch_;  // (max_step_rows, ...)
};

}  // namespace baton
