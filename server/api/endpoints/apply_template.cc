// POST /apply-template: the prompt that the model's template makes of a conversation, as llama.cpp.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/prepared_prompt.h"

namespace baton {
namespace {

ApiFront::TextAnswer Rendered(const ServedModel& model, int64_t, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kApplyTemplate, body, &request)) return *problem;
  if (auto problem = CheckModelName(model, request.model)) return *problem;
  PromptText prompt;
  if (auto problem = RenderMessages(model, request, model.BeginText(), &prompt)) return *problem;
  return JsonObject([&](JsonWriter& json) { json.Field("prompt", prompt.text); });
}

}  // namespace

void AnswerApplyTemplate(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Rendered);
}

}  // namespace baton
