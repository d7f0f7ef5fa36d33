// The result of the text work on the body of a request for tokens: the request, checked, and its
// prompts. Any thread, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/generation_api.h"
#include "server/api/prepared_prompt.h"
#include "server/api/served_model.h"

namespace baton {

struct PreparedRequest {
  ApiRequest request{};
  std::vector<PreparedPrompt> prompts{};
  std::optional<ApiError> error{};

  // tenant: that of the client's key; empty: there are no keys.
  void Read(const GenerationApi& api, const ServedModel& model, const RequestSettings& settings,
            int64_t max_context, const std::string& body, const std::string& tenant = "");

  // True: the prompt is made by GoOn, from the conversation of the response that the request names
  // and its own.
  bool needs_conversation() const {
    return !error && prompts.empty() && !request.response.previous_id.empty();
  }
  // conversation: the whole.
  void GoOn(const ServedModel& model, int64_t max_context, const std::string& conversation);

 private:
  std::optional<ApiError> MakePrompts(const ServedModel& model, int64_t max_context);
  std::optional<ApiError> TryPrompts(const ServedModel& model, int64_t max_context,
                                     size_t n_left_out);
  // Leaves messages out of a conversation whose prompt is too long. whole: the error of that.
  std::optional<ApiError> Truncate(const ServedModel& model, int64_t max_context,
                                   const ApiError& whole);

  TextMoment moment_{};
};

}  // namespace baton
