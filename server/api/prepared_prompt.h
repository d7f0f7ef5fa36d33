// The step from a checked API request to tokens for the router: templates, tokenizing, truncation,
// and the checks that need the model (ids, lengths, context). Pure but for random seeds: any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/router_messages.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"

namespace baton {

// A token of a prompt that the answer repeats.
struct EchoedToken {
  std::string bytes{};  // added to the text by the token
  int64_t offset = 0;   // characters of the text before it
};

struct PreparedPrompt {
  GenerateRequest generate{};         // choice 0's; the others differ in the seed
  std::string echo{};                 // the prompt's text, if the answer begins with it
  std::vector<EchoedToken> echoed{};  // the prompt's tokens, if the answer tells their logprobs
  bool inside_reasoning = false;      // a chat's prompt has opened reasoning
};

// Fills *out in the order of the request's prompts (chat has one). max_context: the cluster's, 0:
// unknown. Cost is linear in the prompts; long ones belong on a pool thread. Nothing: *out is
// whole.
//
// With a seed of the client every prompt has that seed, so that its choices equal those of a
// request with this prompt alone; else each prompt has a random one.
std::optional<ApiError> PreparePrompts(const ServedModel& model, const ApiRequest& request,
                                       int64_t max_context, const TextMoment& moment,
                                       std::vector<PreparedPrompt>* out);

// 404 at `model` unless the model is called so.
std::optional<ApiError> CheckModelName(const ServedModel& model, const std::string& name);

// The prompt that the model's chat template makes of the messages.
std::optional<ApiError> RenderMessages(const ServedModel& model, const ApiRequest& request,
                                       const TextMoment& moment, PromptText* prompt);

// Choices that are generated for each prompt; the answer has `n` of them.
size_t ChoicesPerPrompt(const ApiRequest& request);

}  // namespace baton
