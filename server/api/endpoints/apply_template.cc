// POST /apply-template: the prompt that the model's template makes of a conversation, as llama.cpp.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/prepared_prompt.h"

namespace baton {
namespace {

HttpReply Rendered(const ServedModel& model, int64_t, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kApplyTemplate, body, &request))
    return ErrorReply(*problem);
  if (auto problem = CheckModelName(model, request.model)) return ErrorReply(*problem);
  PromptText prompt;
  if (auto problem = RenderMessages(model, request, TemplateTime(), &prompt))
    return ErrorReply(*problem);
  HttpReply reply;
  reply.body = JsonObject([&](JsonWriter& json) { json.Field("prompt", prompt.text); });
  return reply;
}

}  // namespace

void AnswerApplyTemplate(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Rendered);
}

}  // namespace baton
