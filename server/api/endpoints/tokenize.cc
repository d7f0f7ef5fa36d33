// POST /tokenize and /detokenize, in the forms of vLLM (prompt or messages) and of llama.cpp
// (content).
#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/prepared_prompt.h"
#include "server/api/requested_sampling.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

std::optional<ApiError> CheckModel(const ServedModel& model, const ApiRequest& request) {
  if (auto problem = CheckModelName(model, request.model)) return problem;
  if (model.tokenizer == nullptr)
    return Unsupported("", absl::StrCat("The model `", model.name, "` has no tokenizer."));
  return std::nullopt;
}

// The text that the request wants tokenized.
std::optional<ApiError> TextOfRequest(const ServedModel& model, const ApiRequest& request,
                                      const TextMoment& moment, PromptText* prompt) {
  if (request.content) {
    prompt->text = *request.content;
  } else if (!request.prompts.empty()) {
    prompt->text = std::get<std::string>(request.prompts.front());
  } else {
    return RenderMessages(model, request, moment, prompt);
  }
  return std::nullopt;
}

void WriteIds(JsonWriter& json, const std::vector<int32_t>& tokens) {
  json.Array("tokens", [&] {
    for (const int32_t token : tokens) json.Value(token);
  });
}

// As llama.cpp: the text of a token, or its bytes if they are no text by themselves.
void WritePiece(JsonWriter& json, std::string_view bytes) {
  if (ValidUtf8(bytes) == bytes) {
    json.Field("piece", bytes);
    return;
  }
  json.BytesField("piece", bytes);
}

std::string TokensBody(const ServedModel& model, int64_t max_context, const ApiRequest& request,
                       const std::vector<int32_t>& tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  return JsonObject([&](JsonWriter& json) {
    if (!request.content) {
      json.Field("count", tokens.size());
      json.Field("max_model_len", max_context);
      WriteIds(json, tokens);
      if (!request.token_strings) {
        json.Field("token_strs", nullptr);
        return;
      }
      json.Array("token_strs", [&] {
        for (const int32_t token : tokens) json.Value(tokenizer.TokenBytes(token));
      });
    } else if (request.with_pieces) {
      json.Array("tokens", [&] {
        for (const int32_t token : tokens) {
          json.Object([&] {
            json.Field("id", token);
            WritePiece(json, tokenizer.TokenBytes(token));
          });
        }
      });
    } else {
      WriteIds(json, tokens);
    }
  });
}

ApiFront::TextAnswer Tokenized(const ServedModel& model, int64_t max_context,
                               std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kTokenize, body, &request)) return *problem;
  if (auto problem = CheckModel(model, request)) return *problem;
  const TextMoment moment = model.BeginText();
  PromptText prompt;
  if (auto problem = TextOfRequest(model, request, moment, &prompt)) return *problem;
  const bool add_special = request.add_special_tokens.value_or(!request.prompts.empty());
  const auto tokens = model.tokenizer->Encode(prompt, add_special, nullptr, moment.left());
  if (!tokens.ok()) return InvalidText("", tokens.status());
  return TokensBody(model, max_context, request, *tokens);
}

ApiFront::TextAnswer Detokenized(const ServedModel& model, int64_t, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kDetokenize, body, &request)) return *problem;
  if (auto problem = CheckModel(model, request)) return *problem;
  if (auto problem = CheckTokenIds(model, request.tokens, "tokens")) return *problem;
  const auto text = model.tokenizer->Decode(request.tokens, /*skip_special_tokens=*/false);
  if (!text.ok()) return InvalidField("tokens", std::string(text.status().message()));
  return JsonObject([&](JsonWriter& json) {
    json.Field("prompt", *text);   // vLLM
    json.Field("content", *text);  // llama.cpp
  });
}

}  // namespace

void AnswerTokenize(ApiFront& front, ApiCall call) { front.AnswerText(std::move(call), Tokenized); }

void AnswerDetokenize(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Detokenized);
}

}  // namespace baton
