// POST /v1/chat/completions: OpenAI's chat, messages through the model's template.
#include "server/api/completion_answer.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/stored_chat_answer.h"

namespace baton {
namespace {

// Writes nothing without reasoning.
template <ReasoningNames kNames>
void WriteReasoning(JsonWriter& json, const std::string& reasoning) {
  if (reasoning.empty()) return;
  if (kNames != ReasoningNames::kReasoning) json.Field("reasoning_content", reasoning);
  if (kNames != ReasoningNames::kReasoningContent) json.Field("reasoning", reasoning);
}

// with_index: as the pieces of a stream have it.
void WriteCalls(JsonWriter& json, const std::vector<CallPiece>& calls, bool with_index) {
  if (calls.empty()) return;
  json.Array("tool_calls", [&] {
    for (const CallPiece& call : calls) {
      json.Object([&] {
        if (with_index) json.Field("index", call.index);
        if (!call.name.empty()) {
          json.Field("id", call.id);
          json.Field("type", "function");
        }
        json.Object("function", [&] {
          if (!call.name.empty()) json.Field("name", call.name);
          json.Field("arguments", call.arguments);
        });
      });
    }
  });
}

template <ReasoningNames kNames>
void WriteMessage(JsonWriter& json, const AnswerPiece& answer) {
  json.Object("message", [&] {
    json.Field("role", "assistant");
    if (answer.content.empty() && !answer.calls.empty()) {
      json.Field("content", nullptr);
    } else {
      json.Field("content", answer.content);
    }
    json.Field("refusal", nullptr);
    WriteReasoning<kNames>(json, answer.reasoning);
    WriteCalls(json, answer.calls, false);
  });
}

// An event without anything new has an empty content, so that each token has one.
template <ReasoningNames kNames>
void WriteDelta(JsonWriter& json, const AnswerPiece& piece) {
  json.Object("delta", [&] {
    if (!piece.content.empty() || piece.empty()) json.Field("content", piece.content);
    WriteReasoning<kNames>(json, piece.reasoning);
    WriteCalls(json, piece.calls, true);
  });
}

void WriteFirstDelta(JsonWriter& json) {
  json.Object("delta", [&] {
    json.Field("role", "assistant");
    json.Field("content", "");
  });
}

template <ReasoningNames kNames>
constexpr CompletionForm kForm = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_beside_choices = true,
    .whole = WriteMessage<kNames>,
    .piece = WriteDelta<kNames>,
    .begin = WriteFirstDelta,
    .finish = [](JsonWriter& json) { json.Object("delta", [] {}); },
    .logprobs = WriteChatLogprobs,
};

const CompletionForm& FormWith(ReasoningNames names) {
  switch (names) {
    case ReasoningNames::kReasoningContent:
      return kForm<ReasoningNames::kReasoningContent>;
    case ReasoningNames::kReasoning:
      return kForm<ReasoningNames::kReasoning>;
    case ReasoningNames::kBoth:
      break;
  }
  return kForm<ReasoningNames::kBoth>;
}

}  // namespace

const GenerationApi kChatCompletionsApi = {
    .name = "chat",
    .parse =
        [](std::string_view body, const RequestSettings& settings, ApiRequest* request) {
          return ParseApiRequest(Endpoint::kChat, body, request, settings);
        },
    .answer = [](const ServedModel& model, const ApiRequest& request,
                 const std::vector<PreparedPrompt>& prompts,
                 const AnswerAbout& about) -> std::unique_ptr<Answer> {
      const CompletionForm& form = FormWith(about.reasoning_names);
      if (!request.store || about.store == nullptr)
        return std::make_unique<CompletionAnswer>(form, model, request, prompts, about);
      AnswerAbout named = about;
      named.id = about.unique_id;  // clients may send the id of a request again
      return std::make_unique<StoredChatAnswer>(form, model, request, prompts, named);
    },
};

void AnswerChatCompletions(ApiFront& front, ApiCall call) {
  front.Generate(kChatCompletionsApi, std::move(call));
}

}  // namespace baton
