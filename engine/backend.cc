#include "engine/backend.h"

#include <xxhash.h>

#include <utility>

#include "common/cpus.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/fp32_backend.h"

namespace baton {

KvType EngineOptions::kv_type() const {
  return dtype == "fp32" ? KvType::kFp32 : kv_dtype == "int8" ? KvType::kInt8 : KvType::kBf16;
}

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

int ComputeThreads(int threads) {
  if (threads > 0) return threads;
  return OwnCpuAllowance().threads();
}

uint64_t LogitsDigest(std::span<const float> logits, uint64_t previous) {
  return XXH64(logits.data(), logits.size_bytes(), previous);
}

}  // namespace baton
