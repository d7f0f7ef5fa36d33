// The CPU backend of numerics v1 on x86. Weights bf16, int8 or int4; activations and KV bf16; the
// bits of a row's logits depend on (model, tokens, position) alone, on every ISA path. Engine
// thread.
#pragma once

#include <memory>

#include "engine/cpu/cpu_kernels.h"
#include "engine/cpu/loaded_model.h"
#include "engine/step/backend.h"

namespace baton {

// kernels: MakeCpuKernels for EngineOptions::isa, or emulated kernels in tests. progress as in
// load_backend.h; may be null. InvalidArgument: the model has a width that the kernels cannot
// compute, or its weights are damaged. ResourceExhausted: no memory for the activations.
absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(const EngineOptions& options,
                                                        LoadedModel loaded, CpuKernels kernels,
                                                        void (*progress)(void*, double),
                                                        void* progress_context);

}  // namespace baton
