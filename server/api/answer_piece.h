// A part of a choice's answer, as one event tells it, or the whole of it: text, reasoning, and
// calls of tools. Plain data: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tools/answer_splitter.h"

namespace baton {

struct CallPiece {
  int index = 0;             // within the choice
  std::string name{}, id{};  // where the call begins; else empty: it goes on
  std::string arguments{};   // JSON text, or a part of it
};

struct AnswerPiece {
  std::string content{}, reasoning{};
  std::vector<CallPiece> calls{};  // ascending by index

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
  void Add(const AnswerEvent& event);
  // Adds what follows.
  void Add(AnswerPiece next);
};

// The id of a call, the same for the same choice (its name is unique among requests): nine letters
// and digits, as Mistral's templates demand.
std::string CallId(std::string_view choice, int call);
// The id in Anthropic's form, and back.
std::string ToolUseId(const std::string& call_id);
std::string CallIdOf(const std::string& tool_use_id);

}  // namespace baton
