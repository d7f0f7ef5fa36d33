// POST /tokenize and /detokenize, in the forms of vLLM (prompt or messages) and of llama.cpp
// (content).
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "server/api/text_tokens.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

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
  auto found = TokensOf(model, body);
  if (auto* problem = std::get_if<ApiError>(&found)) return std::move(*problem);
  const TokenizedText& text = std::get<TokenizedText>(found);
  return TokensBody(model, max_context, text.request, text.tokens);
}

ApiFront::TextAnswer Detokenized(const ServedModel& model, int64_t, std::string_view body) {
  auto found = TextOfTokens(model, body);
  if (auto* problem = std::get_if<ApiError>(&found)) return std::move(*problem);
  const std::string& text = std::get<std::string>(found);
  return JsonObject([&](JsonWriter& json) {
    json.Field("prompt", text);   // vLLM
    json.Field("content", text);  // llama.cpp
  });
}

}  // namespace

void AnswerTokenize(ApiFront& front, ApiCall call) { front.AnswerText(std::move(call), Tokenized); }

void AnswerDetokenize(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call), Detokenized);
}

}  // namespace baton
