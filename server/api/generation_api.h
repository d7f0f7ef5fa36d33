// An API by which clients ask for tokens, as ApiFront sees it: how a body is read and how the
// answer is written. What lies between is the same for all of them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/api/answer.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/prepared_prompt.h"
#include "server/api/served_model.h"
#include "server/api/sse_event.h"

namespace baton {

struct GenerationApi {
  const char* name;  // value of the label "endpoint" of metrics
  // Any thread. Nothing: *request is whole.
  std::optional<ApiError> (*parse)(std::string_view body, const RequestSettings& settings,
                                   ApiRequest* request);
  // `model` outlives the answer.
  std::unique_ptr<Answer> (*answer)(const ServedModel& model, const ApiRequest& request,
                                    const std::vector<PreparedPrompt>& prompts,
                                    const AnswerAbout& about);
  // Bytes for a stream that is silent for long, so that proxies keep it open; empty: none.
  std::string_view keep_alive = kSseKeepAlive;
};

}  // namespace baton
