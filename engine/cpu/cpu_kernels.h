// The kernels that compute a model, all of one ISA path. Engine thread.
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
  const ElementwiseKernels* elementwise = nullptr;  // statically allocated
};

// isa: EngineOptions::isa. Errors: a path that this machine lacks, or whose sums differ in the
// self-test.
absl::StatusOr<CpuKernels> MakeCpuKernels(const std::string& isa, ComputePool& pool);

}  // namespace baton
