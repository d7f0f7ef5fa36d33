// POST /apply-template: the prompt that the model's template makes of a conversation, as llama.cpp.
#include "absl/time/clock.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/prepared_prompt.h"

namespace baton {
namespace {

HttpReply Rendered(const ServedModel& model, int64_t, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kApplyTemplate, body, &request))
    return ErrorReply(*problem);
  if (!model.IsCalled(request.model)) return ErrorReply(UnknownModel(request.model));
  std::string text;
  if (auto problem = RenderMessages(model, request, TemplateTime(), &text))
    return ErrorReply(*problem);
  HttpReply reply;
  reply.body = JsonObject([&](JsonWriter& json) { json.Field("prompt", text); });
  return reply;
}

}  // namespace

void AnswerApplyTemplate(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Rendered);
}

}  // namespace baton
