// The form of a request for the API, told by its header alone: is there such a path, does it take
// the method, can the body be read? A pure function; any thread.
#pragma once

#include <optional>

#include "server/api/api_error.h"
#include "server/api/routes.h"
#include "server/http/http_message.h"

namespace baton {

// Returns what is wrong with the header of a request that may ask; nothing: the body may come.
std::optional<ApiError> CheckForm(const FoundRoute& found, const HttpRequest& request);

}  // namespace baton
