// An API by which clients ask for tokens, as ApiFront sees it: how a body is read and how the
// answer is written. What lies between is the same for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "server/api/answer.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"

namespace baton {

struct GenerationApi {
  const char* name;  // value of the label "endpoint" of metrics
  // Any thread. Nothing: *request is whole.
  std::optional<ApiError> (*parse)(std::string_view body, ApiRequest* request);
  // `model` outlives the answer. id: the request's, without a prefix. created: seconds since 1970.
  std::unique_ptr<Answer> (*answer)(const ServedModel& model, const ApiRequest& request,
                                    const GenerateRequest& generate, std::string_view id,
                                    int64_t created);
  // The answer to a request that is refused, or fails before its stream has begun.
  HttpReply (*refusal)(const ApiError& error);
};

}  // namespace baton
