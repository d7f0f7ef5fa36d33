#include "server/api/requested_tools.h"

#include "absl/strings/str_cat.h"

namespace baton {

AnswerFormat AnswerFormatOf(const ServedModel& model, const ApiRequest& request) {
  AnswerFormat format;
  if (!request.is_chat()) return format;
  if (request.separate_reasoning) format.reasoning = model.answer_format.reasoning;
  if (!request.callable_tools.empty()) format.tools = model.CallFormat(request.must_call());
  return format;
}

std::string GrammarPath(const ApiRequest& request) {
  return request.grammar_path.empty() ? "tools" : request.grammar_path;
}

std::optional<ApiError> MakeAnswerGrammar(const ServedModel& model, const ApiRequest& request,
                                          bool inside_reasoning, GrammarSpec* grammar) {
  const ToolGrammarRequest wanted{
      .format = AnswerFormatOf(model, request),
      .content = request.grammar,
      .tools = request.callable_tools,
      .must_call = request.must_call(),
      .parallel = request.parallel_tool_calls && request.tool_choice != ToolChoice::kNamed,
      .inside_reasoning = inside_reasoning};
  auto made = ToolGrammar(wanted, *model.tokenizer);
  if (!made.ok()) {
    const std::string path = GrammarPath(request);
    return Unsupported(path, absl::StrCat(path, ": ", std::string(made.status().message())));
  }
  *grammar = *std::move(made);
  return std::nullopt;
}

}  // namespace baton
