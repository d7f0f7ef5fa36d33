// POST /v1/completions: OpenAI's completions, prompts as text or token ids.
#include "server/api/completion_answer.h"
#include "server/api/endpoints/endpoints.h"

namespace baton {
namespace {

void WriteText(JsonWriter& json, const AnswerPiece& piece) { json.Field("text", piece.content); }

constexpr CompletionForm kForm = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .prompt_beside_choices = false,
    .whole = WriteText,
    .piece = WriteText,
    .begin = nullptr,
    .finish = nullptr,
    .logprobs = WriteCompletionLogprobs,
};

}  // namespace

const GenerationApi kCompletionsApi = {
    .name = "completions",
    .parse =
        [](std::string_view body, const RequestSettings& settings, ApiRequest* request) {
          return ParseApiRequest(Endpoint::kCompletions, body, request, settings);
        },
    .answer = AnswerOfForm<kForm>,
};

void AnswerCompletions(ApiFront& front, ApiCall call) {
  front.Generate(kCompletionsApi, std::move(call));
}

}  // namespace baton
