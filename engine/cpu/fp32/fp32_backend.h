// The plain fp32 mode (dtype fp32): weights, activations and KV in fp32, simple loops. What the
// bf16 backend is compared with, and what is compared with Hugging Face most sharply. The order of
// every sum is fixed per row; its numerics id differs from v1's.
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
