#include "server/api/prepared_request.h"

#include "server/api/guarded_work.h"

namespace baton {

void PreparedRequest::Read(const GenerationApi& api, const ServedModel& model,
                           const RequestSettings& settings, int64_t max_context,
                           const std::string& body) {
  error = GuardedWork([&]() -> std::optional<ApiError> {
    if (auto problem = api.parse(body, settings, &request)) return problem;
    if (auto problem = CheckModelName(model, request.model)) return problem;
    return needs_conversation() ? std::nullopt : MakePrompts(model, max_context);
  });
}

void PreparedRequest::GoOn(const ServedModel& model, int64_t max_context,
                           const std::string& conversation) {
  request.response.conversation = conversation;
  error = GuardedWork([&] { return MakePrompts(model, max_context); });
}

std::optional<ApiError> PreparedRequest::MakePrompts(const ServedModel& model,
                                                     int64_t max_context) {
  if (request.endpoint != Endpoint::kResponses)
    return PreparePrompts(model, request, max_context, TemplateTime(), &prompts);
  auto problem = TryPrompts(model, max_context, 0);
  if (problem && problem->code == "context_length_exceeded" && request.response.truncates) {
    // The fewest messages that must go: bisected, for each try is a whole prompt.
    size_t too_few = 0, enough = request.response.n_messages;
    while (enough > too_few + 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (TryPrompts(model, max_context, middle) ? too_few : enough) = middle;
    }
    if (enough < request.response.n_messages) problem = TryPrompts(model, max_context, enough);
  }
  if (problem && problem->param == "messages") problem->param = "input";
  return problem;
}

std::optional<ApiError> PreparedRequest::TryPrompts(const ServedModel& model, int64_t max_context,
                                                    size_t n_left_out) {
  prompts.clear();
  if (auto problem = ReadConversation(n_left_out, &request)) return problem;
  return PreparePrompts(model, request, max_context, TemplateTime(), &prompts);
}

}  // namespace baton
