#include "server/api/text_tokens.h"

#include "absl/strings/str_cat.h"
#include "server/api/prepared_prompt.h"
#include "server/api/requested_sampling.h"

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

}  // namespace

std::variant<TokenizedText, ApiError> TokensOf(const ServedModel& model, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kTokenize, body, &request)) return *problem;
  if (auto problem = CheckModel(model, request)) return *problem;
  const TextMoment moment = model.BeginText();
  PromptText prompt;
  if (auto problem = TextOfRequest(model, request, moment, &prompt)) return *problem;
  const bool add_special = request.add_special_tokens.value_or(!request.prompts.empty());
  auto tokens = model.tokenizer->Encode(prompt, add_special, nullptr, moment.left());
  if (!tokens.ok()) return InvalidText("", tokens.status());
  return TokenizedText{std::move(request), *std::move(tokens)};
}

std::variant<std::string, ApiError> TextOfTokens(const ServedModel& model, std::string_view body) {
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kDetokenize, body, &request)) return *problem;
  if (auto problem = CheckModel(model, request)) return *problem;
  if (auto problem = CheckTokenIds(model, request.tokens, "tokens")) return *problem;
  auto text = model.tokenizer->Decode(request.tokens, /*skip_special_tokens=*/false);
  if (!text.ok()) return InvalidField("tokens", std::string(text.status().message()));
  return *std::move(text);
}

}  // namespace baton
