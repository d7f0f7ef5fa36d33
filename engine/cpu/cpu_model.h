// A model ready to compute on this machine: described, kernels chosen, weights packed. Read-only
// during a step, except for the scratch of the kernels. Engine thread.
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
  // Packs or maps the weights. Errors: widths that the kernels cannot cut into tiles; the errors of
  // LoadCpuWeights. progress(context, fraction) runs while weights are packed.
  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context);

  ModelDesc desc;
  KvLayout layout;
  WeightFormats formats;
  RopeTables ropes;
  uint64_t rope_digest;
  std::unique_ptr<WeightSource> source;  // source of the embedding rows
  std::unique_ptr<ComputePool> compute;
  std::unique_ptr<LinearKernels> linear;
  std::unique_ptr<AttentionKernels> attention;
  const ElementwiseKernels* elementwise;
  CpuWeights weights;

 private:
  absl::Status CheckWidths(const std::string& name) const;
};

}  // namespace baton
