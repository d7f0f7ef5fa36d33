#include "engine/cpu/cpu_kernels.h"

#include <utility>

namespace baton {

absl::StatusOr<CpuKernels> MakeCpuKernels(const std::string& isa, ComputePool& pool) {
  CpuKernels kernels;
  if (isa == "auto") {
    ASSIGN_OR_RETURN(kernels.linear, MakeFastestLinearKernels(pool));
  } else {
    ASSIGN_OR_RETURN(const Isa path, ParseIsa(isa));
    ASSIGN_OR_RETURN(kernels.linear, MakeLinearKernels(path));
  }
  kernels.attention = MakeAttentionKernels(kernels.linear->isa());
  kernels.elementwise = &GetElementwiseKernels(kernels.linear->isa());
  return kernels;
}

}  // namespace baton
