#include "engine/load_backend.h"

#include <utility>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/fp32/fp32_backend.h"

namespace baton {

absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const EngineOptions& options,
                                                     void (*progress)(void*, double),
                                                     void* progress_context) {
  ASSIGN_OR_RETURN(LoadedModel loaded, OpenModel(options));
  if (options.dtype == "fp32") {
    return LoadFp32Backend(options, std::move(loaded), progress, progress_context);
  }
  ASSIGN_OR_RETURN(CpuKernels kernels, MakeCpuKernels(options.isa, *loaded.pool));
  return LoadCpuBackend(options, std::move(loaded), std::move(kernels), progress, progress_context);
}

absl::StatusOr<std::unique_ptr<Backend>> LoadLabBackend(const EngineOptions& options,
                                                        const EngineLab& lab,
                                                        void (*progress)(void*, double),
                                                        void* progress_context) {
  if (!lab.dense_mask) return LoadBackend(options, progress, progress_context);
  if (options.dtype == "fp32") {
    return absl::InvalidArgumentError(
        "engine: dtype fp32 computes what a query sees and no more; attention dense_mask goes with "
        "bf16");
  }
  ASSIGN_OR_RETURN(LoadedModel loaded, OpenModel(options));
  ASSIGN_OR_RETURN(CpuKernels kernels, MakeCpuKernels(options.isa, *loaded.pool));
  kernels.attention = MakeDenseMaskAttentionOf(AttentionTileKernelsOf(kernels.linear->isa()));
  return LoadCpuBackend(options, std::move(loaded), std::move(kernels), progress, progress_context);
}

}  // namespace baton
