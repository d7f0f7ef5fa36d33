#include "text/tools/answer_format.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Words that no template has.
constexpr std::string_view kQuestion = "probequestion", kName = "probecall", kValue = "probevalue",
                           kThought = "probethought", kReply = "probereply";

// The prompt of a conversation. Nothing: the template refuses it.
std::optional<std::string> Render(const ChatTemplate& chat_template, const std::string& messages,
                                  std::string_view tools, bool add_generation_prompt) {
  ChatTemplateInput input;
  input.messages = messages;
  input.tools = tools;
  input.add_generation_prompt = add_generation_prompt;
  auto prompt = chat_template.Render(input);
  return prompt.ok() ? std::optional<std::string>(std::move(prompt->text)) : std::nullopt;
}

std::string Question() {
  return absl::StrFormat(R"({"role": "user", "content": "%s"})", kQuestion);
}

std::string Tools() {
  return absl::StrFormat(
      R"([{"type": "function", "function": {"name": "%s", "description": "d",
           "parameters": {"type": "object", "properties": {}}}}])",
      kName);
}

// Ids of calls have the nine letters that Mistral's templates ask for.
std::string Call() {
  return absl::StrFormat(
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi",
          "type": "function", "function": {"name": "%s", "arguments": {"k": "%s"}}}]})",
      kName, kValue);
}

std::string WithoutSpace(std::string_view text) {
  std::string dense(text);
  std::erase_if(dense, [](unsigned char c) { return absl::ascii_isspace(c); });
  return dense;
}

// before: from the question to the name of the call; between: from there to the arguments' value.
ToolFormat FormatOf(std::string_view before, std::string_view between) {
  if (const size_t marker = before.rfind("[TOOL_CALLS]"); marker != before.npos)
    return before.find('{', marker) != before.npos ? ToolFormat::kMistralList
                                                   : ToolFormat::kMistralNamed;
  const std::string head = WithoutSpace(before), tail = WithoutSpace(between);
  if (head.ends_with(R"(<tool_call>{"name":")") && tail.starts_with(R"(","arguments":)"))
    return ToolFormat::kHermes;
  if (head.ends_with(R"({"name":")") && tail.starts_with(R"(","parameters":)"))
    return ToolFormat::kLlama3;
  return ToolFormat::kNone;
}

ToolFormat FindToolFormat(const ChatTemplate& chat_template) {
  const std::string messages = absl::StrFormat("[%s, %s]", Question(), Call()), tools = Tools();
  const auto prompt = Render(chat_template, messages, tools, false);
  if (!prompt) return ToolFormat::kNone;
  const std::string_view text = *prompt;
  const size_t question = text.rfind(kQuestion);
  if (question == text.npos) return ToolFormat::kNone;
  const std::string_view answer = text.substr(question + kQuestion.size());
  const size_t name = answer.find(kName), value = answer.find(kValue);
  if (name == answer.npos || value == answer.npos) return ToolFormat::kNone;
  // A template that writes keys in the order of the alphabet has the arguments first.
  const size_t end = name + kName.size();
  return FormatOf(answer.substr(0, name),
                  end < value ? answer.substr(end, value - end) : std::string_view());
}

bool Has(const std::optional<std::string>& prompt, std::string_view text) {
  return prompt && prompt->find(text) != std::string::npos;
}

// Templates that know reasoning open it, speak of it, or drop it from earlier answers.
bool Uses(const ChatTemplate& chat_template, const ReasoningMarkers& markers) {
  const std::string question = Question();
  if (Has(Render(chat_template, absl::StrFormat("[%s]", question), "", true), markers.open))
    return true;
  const std::string messages =
      absl::StrFormat(R"([%s, {"role": "assistant", "content": "%s\n%s\n%s%s"}, %s])", question,
                      markers.open, kThought, markers.close, kReply, question);
  const auto prompt = Render(chat_template, messages, "", true);
  return Has(prompt, kReply) && !Has(prompt, kThought);
}

}  // namespace

AnswerFormat FindAnswerFormat(const ChatTemplate& chat_template) {
  AnswerFormat format;
  format.tools = FindToolFormat(chat_template);
  for (const auto reasoning : {ReasoningFormat::kThinkTags, ReasoningFormat::kThinkBrackets}) {
    if (!Uses(chat_template, MarkersOf(reasoning))) continue;
    format.reasoning = reasoning;
    break;
  }
  return format;
}

std::string_view CallMarker(ToolFormat format) {
  switch (format) {
    case ToolFormat::kLlama3:
      return "<|python_tag|>";
    case ToolFormat::kHermes:
      return "<tool_call>";
    case ToolFormat::kMistralList:
    case ToolFormat::kMistralNamed:
      return "[TOOL_CALLS]";
    case ToolFormat::kNone:
      break;
  }
  return "";
}

ReasoningMarkers MarkersOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThinkTags:
      return {"<think>", "</think>"};
    case ReasoningFormat::kThinkBrackets:
      return {"[THINK]", "[/THINK]"};
    case ReasoningFormat::kNone:
      break;
  }
  return {};
}

std::vector<std::string_view> AllMarkers(const AnswerFormat& format) {
  std::vector<std::string_view> markers;
  if (format.tools != ToolFormat::kNone) markers.push_back(CallMarker(format.tools));
  if (format.tools == ToolFormat::kHermes) markers.push_back(kCallEndMarker);
  // Models of both Mistral forms are read alike.
  if (CallMarker(format.tools) == CallMarker(ToolFormat::kMistralNamed))
    markers.insert(markers.end(), {kCallIdMarker, kArgumentsMarker});
  if (const ReasoningMarkers reasoning = MarkersOf(format.reasoning); !reasoning.open.empty())
    markers.insert(markers.end(), {reasoning.open, reasoning.close});
  return markers;
}

bool EndsInsideReasoning(std::string_view prompt, ReasoningFormat format, size_t continued) {
  const auto [open, close] = MarkersOf(format);
  if (open.empty()) return false;
  const size_t begin = prompt.size() - std::min(prompt.size(), continued);
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  std::string_view before = prompt.substr(0, begin), begun = prompt.substr(begin);
  before = before.substr(0, before.find_last_not_of(kSpace) + 1);
  begun.remove_prefix(std::min(begun.size(), begun.find_first_not_of(kSpace)));
  const bool is_opened = before.ends_with(open) || begun.starts_with(open);
  return is_opened && begun.find(close) == std::string_view::npos;
}

}  // namespace baton
