// A model ready to be computed on this machine: described, its kernels chosen, its weights packed.
// Read-only in a step but for the kernels' scratch. Engine thread.
#pragma once

#include <memory>
#include <string>

#include "engine/cpu/cpu_kernels.h"
#include "engine/cpu/cpu_weights.h"
#include "engine/cpu/loaded_model.h"
#include "engine/step/backend.h"

namespace baton {

struct CpuModel {
  CpuModel(const EngineOptions& options, LoadedModel loaded, CpuKernels kernels);
  // Errors: widths that the kernels cannot cut into their tiles, what LoadCpuWeights
  // refuses. progress(context, fraction) runs while weights are packed.
  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context);

  ModelDesc desc;
  KvLayout layout;
  WeightFormats formats;
  bool dense_mask;  // of the attention
  RopeTables ropes;
  uint64_t rope_digest;
  std::unique_ptr<WeightSource> source;  // embedding rows are read from it
  std::unique_ptr<ComputePool> compute;
  std::unique_ptr<LinearKernels> linear;
  std::unique_ptr<AttentionKernels> attention;
  const ElementwiseKernels* elementwise;
  CpuWeights weights;

 private:
  absl::Status CheckWidths(const std::string& name) const;
};

}  // namespace baton
