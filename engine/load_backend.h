// Chooses the engine: the only place that knows every Backend.
#pragma once

#include <memory>

#include "common/status.h"
#include "engine/step/backend.h"

namespace baton {

// Opens the model and packs or maps its weights. progress(progress_context, fraction) is called now
// and then while weights load, on the calling thread. Errors: options out of range, a machine that
// lacks the instructions, a model that cannot be read; each names what to change.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const EngineOptions& options,
                                                     void (*progress)(void*, double) = nullptr,
                                                     void* progress_context = nullptr);

}  // namespace baton
