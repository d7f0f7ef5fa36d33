// POST /v1/chat/completions: OpenAI's chat, messages through the model's template.
#include "server/api/completion_answer.h"
#include "server/api/endpoints/endpoints.h"

namespace baton {
namespace {

void WriteMessage(JsonWriter& json, std::string_view text) {
  json.Object("message", [&] {
    json.Field("role", "assistant");
    json.Field("content", text);
    json.Field("refusal", nullptr);
  });
}

void WriteFirstDelta(JsonWriter& json) {
  json.Object("delta", [&] {
    json.Field("role", "assistant");
    json.Field("content", "");
  });
}

constexpr CompletionForm kForm = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_ids_beside_choices = true,
    .whole = WriteMessage,
    .piece =
        [](JsonWriter& json, std::string_view text) {
          json.Object("delta", [&] { json.Field("content", text); });
        },
    .begin = WriteFirstDelta,
    .finish = [](JsonWriter& json) { json.Object("delta", [] {}); },
    .logprobs = WriteChatLogprobs,
};

}  // namespace

const GenerationApi kChatCompletionsApi = {
    .name = "chat",
    .parse =
        [](std::string_view body, const RequestSettings& settings, ApiRequest* request) {
          return ParseApiRequest(Endpoint::kChat, body, request, settings);
        },
    .answer = AnswerOfForm<kForm>,
    .refusal = ErrorReply,
};

void AnswerChatCompletions(ApiFront& front, ApiCall call) {
  front.Generate(kChatCompletionsApi, std::move(call));
}

}  // namespace baton
