#include "server/api/prepared_request.h"

#include <utility>

#include "server/api/guarded_work.h"
#include "server/api/truncation_search.h"

namespace baton {
namespace {

bool IsTooLong(const ApiError& problem) { return problem.code == "context_length_exceeded"; }
bool IsTooSlow(const ApiError& problem) { return problem.code == kPromptTooSlow; }

}  // namespace

void PreparedRequest::Read(const GenerationApi& api, const ServedModel& model,
                           const RequestSettings& settings, int64_t max_context,
                           const std::string& body, const std::string& tenant) {
  moment_ = model.BeginText();
  error = GuardedWork([&]() -> std::optional<ApiError> {
    if (auto problem = api.parse(body, settings, &request)) return problem;
    request.tenant = tenant;
    if (auto problem = CheckModelName(model, request.model)) return problem;
    return needs_conversation() ? std::nullopt : MakePrompts(model, max_context);
  });
}

void PreparedRequest::GoOn(const ServedModel& model, int64_t max_context,
                           const std::string& conversation) {
  moment_ = model.BeginText();
  request.response.conversation = conversation;
  error = GuardedWork([&] { return MakePrompts(model, max_context); });
}

std::optional<ApiError> PreparedRequest::MakePrompts(const ServedModel& model,
                                                     int64_t max_context) {
  if (request.endpoint != Endpoint::kResponses)
    return PreparePrompts(model, request, max_context, moment_, &prompts);
  auto problem = TryPrompts(model, max_context, 0);
  if (problem && IsTooLong(*problem) && request.response.truncates)
    problem = Truncate(model, max_context, *problem);
  if (problem && problem->param == "messages") problem->param = "input";
  // The prompt is made of them, and the front thread copies the request.
  if (!problem) {
    for (std::string* text : {&request.messages, &request.messages_in_parts, &request.tools})
      std::string().swap(*text);
  }
  return problem;
}

std::optional<ApiError> PreparedRequest::Truncate(const ServedModel& model, int64_t max_context,
                                                  const ApiError& whole) {
  const int64_t room = whole.n_ctx.value_or(0) - request.max_tokens.value_or(1);
  if (room < 1) return whole;
  TruncationSearch search(request.response.message_bytes, whole.n_prompt_tokens.value_or(0), room);
  std::vector<PreparedPrompt> fitting;
  while (const auto next = search.Next()) {
    const auto problem = TryPrompts(model, max_context, *next);
    if (!problem) {
      search.OnFits(static_cast<int64_t>(prompts.front().generate.prompt.size()));
      fitting = std::move(prompts);
    } else if (!IsTooSlow(*problem)) {  // too long, or refused by the template in this form
      search.OnTooLong(problem->n_prompt_tokens.value_or(0));
    } else if (!search.found()) {
      return problem;
    } else {
      break;
    }
  }
  if (!search.found()) return whole;
  prompts = std::move(fitting);
  return ReadConversation(*search.found(), &request);
}

std::optional<ApiError> PreparedRequest::TryPrompts(const ServedModel& model, int64_t max_context,
                                                    size_t n_left_out) {
  prompts.clear();
  if (auto problem = ReadConversation(n_left_out, &request)) return problem;
  return PreparePrompts(model, request, max_context, moment_, &prompts);
}

}  // namespace baton
