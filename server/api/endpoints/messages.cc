// POST /v1/messages and /v1/messages/count_tokens: Anthropic's API.
#include "server/api/messages_answer.h"

#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/prepared_prompt.h"

namespace baton {
namespace {

ApiFront::TextAnswer Counted(const ServedModel& model, int64_t, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kCountTokens, body, &request)) return *problem;
  if (auto problem = CheckModelName(model, request.model)) return *problem;
  const TextMoment moment = model.BeginText();
  PromptText prompt;
  if (auto problem = RenderMessages(model, request, moment, &prompt)) return *problem;
  // Without the cache, whose entries are a tenant's: who asks is not told here.
  const auto tokens = model.tokenizer->Encode(prompt, false, nullptr, moment.left());
  if (!tokens.ok()) return InvalidText("messages", tokens.status());
  return JsonObject([&](JsonWriter& json) { json.Field("input_tokens", tokens->size()); });
}

}  // namespace

const GenerationApi kMessagesApi = {
    .name = "messages",
    .parse =
        [](std::string_view body, const RequestSettings& settings, ApiRequest* request) {
          return ParseApiRequest(Endpoint::kMessages, body, request, settings);
        },
    .answer = [](const ServedModel& model, const ApiRequest& request,
                 const std::vector<PreparedPrompt>& prompts,
                 const AnswerAbout& about) -> std::unique_ptr<Answer> {
      return std::make_unique<MessagesAnswer>(model, request, prompts, about);
    },
};

void AnswerMessages(ApiFront& front, ApiCall call) {
  front.Generate(kMessagesApi, std::move(call));
}

void AnswerCountTokens(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Counted);
}

}  // namespace baton
