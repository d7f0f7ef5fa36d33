// The grammar of answers that call tools: calls in the model's own form, each with arguments by the
// schema of its tool, so that AnswerSplitter reads what the grammar lets the model write. Pure: any
// thread.
//
// Two kinds of answers:
//   must_call   calls and nothing else (tool_choice required, named)
//   else        text, or calls after some text: from the marker on, the grammar holds (auto with a
//               strict tool, or without parallel calls). For kLlama3 without a marker, an answer
//               that begins with "{" is a call.
// A model that reasons may do so first. Docs: docs/TOOLS.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar_spec.h"
#include "text/tokenizer.h"
#include "text/tools/answer_format.h"

namespace baton {

inline constexpr int kMaxParallelCalls = 64;  // of an answer that a grammar holds

struct CallableTool {
  std::string name;
  std::string parameters{};  // the text of a JSON schema; empty: any object
  bool strict = false;
  bool operator==(const CallableTool&) const = default;
};

struct ToolGrammarRequest {
  AnswerFormat format;
  GrammarSpec content{};            // what an answer without calls is held to; kNone: any text
  std::vector<CallableTool> tools;  // those that may be called: of a named choice, one
  bool must_call = false;           // then all tools are strict
  bool parallel = true;             // false (and for a named choice): one call
  bool inside_reasoning = false;    // the prompt has opened reasoning (EndsInsideReasoning)
};

// Returns kNone if nothing is to be enforced; with content, an answer is that or calls.
// InvalidArgument: calls are to be enforced and their format is kNone, or a Lark grammar is to
// stand beside reasoning or calls. Grammar::Compile finds what is wrong with schemas, or too large.
// A template that knows no calls can be held to kHermes.
absl::StatusOr<GrammarSpec> ToolGrammar(const ToolGrammarRequest& request,
                                        const Tokenizer& tokenizer);

// A regex of all texts in which `marker` does not stand. The marker's first byte stands nowhere
// else in it, and it is ASCII.
std::string RegexWithout(std::string_view marker);

}  // namespace baton
