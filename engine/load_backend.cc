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

}  // namespace baton
