// POST /v1/chat/completions: OpenAI's chat, messages through the model's template.
#include "server/api/completion_answer.h"
#include "server/api/endpoints/endpoints.h"

namespace baton {
namespace {

void WriteMessage(JsonWriter& json, std::string_view key, std::string_view text) {
  json.Object(key, [&] {
    json.Field("role", "assistant");
    json.Field("content", text);
  });
}

constexpr CompletionForm kForm = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .whole = [](JsonWriter& json, std::string_view text) { WriteMessage(json, "message", text); },
    .piece =
        [](JsonWriter& json, std::string_view text) {
          json.Object("delta", [&] { json.Field("content", text); });
        },
    .begin = [](JsonWriter& json) { WriteMessage(json, "delta", ""); },
    .finish = [](JsonWriter& json) { json.Object("delta", [] {}); },
};

}  // namespace

const GenerationApi kChatCompletionsApi = {
    .name = "chat",
    .parse = [](std::string_view body,
                ApiRequest* request) { return ParseApiRequest(Endpoint::kChat, body, request); },
    .answer = AnswerOfForm<kForm>,
    .refusal = ErrorReply,
};

void AnswerChatCompletions(ApiFront& front, ApiCall call) {
  front.Generate(kChatCompletionsApi, std::move(call));
}

}  // namespace baton
