#include "server/api/prepared_request.h"

namespace baton {

void PreparedRequest::Read(const GenerationApi& api, const ServedModel& model,
                           const RequestSettings& settings, int64_t max_context,
                           const std::string& body) {
  error = api.parse(body, settings, &request);
  if (!error) error = CheckModelName(model, request.model);
  if (!error && !needs_conversation()) MakePrompts(model, max_context);
}

void PreparedRequest::GoOn(const ServedModel& model, int64_t max_context,
                           const std::string& conversation) {
  request.response.conversation = conversation;
  MakePrompts(model, max_context);
}

void PreparedRequest::MakePrompts(const ServedModel& model, int64_t max_context) {
  if (request.endpoint != Endpoint::kResponses) {
    error = PreparePrompts(model, request, max_context, TemplateTime(), &prompts);
    return;
  }
  error = TryPrompts(model, max_context, 0);
  if (error && error->code == "context_length_exceeded" && request.response.truncates) {
    // The fewest messages that must go: bisected, for each try is a whole prompt.
    size_t too_few = 0, enough = request.response.n_messages;
    while (enough > too_few + 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (TryPrompts(model, max_context, middle) ? too_few : enough) = middle;
    }
    if (enough < request.response.n_messages) error = TryPrompts(model, max_context, enough);
  }
  if (!error) return;
  if (error->param == "messages") error->param = "input";
  if (error->param == "max_tokens") error->param = "max_output_tokens";
}

std::optional<ApiError> PreparedRequest::TryPrompts(const ServedModel& model, int64_t max_context,
                                                    size_t n_left_out) {
  prompts.clear();
  if (auto problem = ReadConversation(n_left_out, &request)) return problem;
  return PreparePrompts(model, request, max_context, TemplateTime(), &prompts);
}

}  // namespace baton
