// Chooses the engine: the only place that knows every Backend. Any thread; the Backend then belongs
// to the engine thread.
#pragma once

#include <memory>

#include "common/status.h"
#include "engine/step/backend.h"
#include "engine/step/engine_lab.h"

namespace baton {

// Opens the model and packs or maps its weights. progress(progress_context, fraction), fraction
// from 0 to 1, is called now and then while weights load, on the calling thread; may be null.
// InvalidArgument: options out of range, a model that cannot be computed. FailedPrecondition: the
// machine lacks the instructions. NotFound: no such model. ResourceExhausted: no memory. Errors
// name what to change.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const EngineOptions& options,
                                                     void (*progress)(void*, double) = nullptr,
                                                     void* progress_context = nullptr);

// As LoadBackend, but for comparisons, as `lab` says. Also InvalidArgument: a dense mask with dtype
// fp32.
absl::StatusOr<std::unique_ptr<Backend>> LoadLabBackend(const EngineOptions& options,
                                                        const EngineLab& lab,
                                                        void (*progress)(void*, double) = nullptr,
                                                        void* progress_context = nullptr);

}  // namespace baton
