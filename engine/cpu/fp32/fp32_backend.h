// The plain fp32 mode (dtype fp32): weights, activations and KV in fp32, simple loops. The
// reference for the bf16 backend, and the backend with the sharpest comparison with Hugging Face.
// The order of every sum is fixed per row; the numerics id differs from v1's. Engine thread.
#pragma once

#include <memory>

#include "engine/cpu/loaded_model.h"
#include "engine/step/backend.h"

namespace baton {

absl::StatusOr<std::unique_ptr<Backend>> LoadFp32Backend(const EngineOptions& options,
                                                         LoadedModel loaded,
                                                         void (*progress)(void*, double),
                                                         void* progress_context);

}  // namespace baton
