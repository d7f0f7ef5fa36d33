// Runs work on a client's data. Boost.Json throws where a document has another form than the code
// takes for granted: a bug of Baton, which costs this request a 500 and not everybody the router.
#pragma once

#include <exception>
#include <optional>

#include "common/log.h"
#include "server/api/api_error.h"

namespace baton {

// Returns the error of `work`, a function without arguments that returns one or nothing, or the 500
// of an exception, which is logged. Any thread.
template <typename Work>
std::optional<ApiError> GuardedWork(Work work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    LogError("a request's data ended its work, which is a bug: %s", problem.what());
    return FromClusterStatus(absl::InternalError(problem.what()));
  }
}

}  // namespace baton
