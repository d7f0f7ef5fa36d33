// Where engines are chosen: the one place that knows every Backend.
#pragma once

#include <memory>

#include "common/status.h"
#include "engine/step/backend.h"

namespace baton {

// progress(fraction) is called now and then while weights load, on the calling thread.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const EngineOptions& options,
                                                     void (*progress)(void*, double) = nullptr,
                                                     void* progress_context = nullptr);

}  // namespace baton
