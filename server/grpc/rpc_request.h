// Requests of the gRPC API, translated into the bodies of HTTP requests, so that one table of
// fields checks both and errors are the same. Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/api_request.h"

namespace baton {

// GenerationApi::parse. body: a serialized GenerateRequest.
std::optional<ApiError> ParseGenerate(std::string_view body, const RequestSettings& settings,
                                      ApiRequest* request);
// *json becomes the body of POST /tokenize or /detokenize. body: a serialized TokenizeRequest,
// DetokenizeRequest.
std::optional<ApiError> TokenizeJson(std::string_view body, std::string* json);
std::optional<ApiError> DetokenizeJson(std::string_view body, std::string* json);

}  // namespace baton
