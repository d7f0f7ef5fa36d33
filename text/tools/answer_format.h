// The form in which a model writes calls of tools and reasoning: found from what its chat template
// makes of a conversation with a call. Pure: any thread that may render a template.
//
//   kLlama3        {"name": "f", "parameters": {...}} as the whole answer, or after <|python_tag|>
//   kHermes        <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>   (Qwen, Hermes)
//   kMistralList   [TOOL_CALLS] [{"name": "f", "arguments": {...}}]
//   kMistralNamed  [TOOL_CALLS]f[ARGS]{...}, perhaps with [CALL_ID]id before [ARGS]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace baton {

enum class ToolFormat { kNone, kLlama3, kHermes, kMistralList, kMistralNamed };
// <think>...</think>, [THINK]...[/THINK].
enum class ReasoningFormat { kNone, kThinkTags, kThinkBrackets };

struct AnswerFormat {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool operator==(const AnswerFormat&) const = default;
};

// Renders small conversations. A template that refuses them, or writes calls in another form, has
// kNone.
AnswerFormat FindAnswerFormat(const ChatTemplate& chat_template);

// The text that opens a call; empty for kNone.
std::string_view CallMarker(ToolFormat format);
inline constexpr std::string_view kCallEndMarker = "</tool_call>";  // kHermes
inline constexpr std::string_view kCallIdMarker = "[CALL_ID]";      // kMistralNamed
inline constexpr std::string_view kArgumentsMarker = "[ARGS]";      // kMistralNamed

// The text around reasoning; empty for kNone.
struct ReasoningMarkers {
  std::string_view open, close;
};
ReasoningMarkers MarkersOf(ReasoningFormat format);

// All markers of the form. Where a tokenizer has them as special tokens, the text that goes to
// AnswerSplitter is made with them (DetokenizerOptions::shown_tokens).
std::vector<std::string_view> AllMarkers(const AnswerFormat& format);

// Whether the answer to this prompt begins inside reasoning: the prompt ends with the opening
// marker and white space; of an answer that goes on with a text of so many bytes, the marker stands
// before it or begins it, and it is not closed.
bool EndsInsideReasoning(std::string_view prompt, ReasoningFormat format, size_t continued = 0);

}  // namespace baton
