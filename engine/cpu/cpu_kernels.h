// The kernels that a model is computed with: all of one ISA path. Engine thread.
#pragma once

#include <memory>
#include <string>

#include "engine/cpu/attention/attention.h"
#include "engine/cpu/linear/linear.h"
#include "engine/cpu/rows/elementwise.h"

namespace baton {

struct CpuKernels {
  std::unique_ptr<LinearKernels> linear;
  std::unique_ptr<AttentionKernels> attention;
  const ElementwiseKernels* elementwise = nullptr;  // static
};

// isa: as EngineOptions has it. Error: a path this machine lacks, or whose sums differ.
absl::StatusOr<CpuKernels> MakeCpuKernels(const std::string& isa, ComputePool& pool);

}  // namespace baton
