#include "server/api/answer_piece.h"

#include <xxhash.h>

#include <cstdint>
#include <utility>

#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr char kToolUsePrefix[] = "toolu_";

}  // namespace

void AnswerPiece::Add(const AnswerEvent& event) {
  switch (event.kind) {
    case AnswerEvent::kContent:
      content += event.text;
      return;
    case AnswerEvent::kReasoning:
      reasoning += event.text;
      return;
    case AnswerEvent::kCallStart:
      calls.push_back({.index = event.call, .name = event.text});
      return;
    case AnswerEvent::kCallArguments:
      if (calls.empty() || calls.back().index != event.call) calls.push_back({.index = event.call});
      calls.back().arguments += event.text;
      return;
    case AnswerEvent::kCallEnd:
      return;
  }
}

void AnswerPiece::Add(AnswerPiece next) {
  content += next.content;
  reasoning += next.reasoning;
  for (CallPiece& call : next.calls) {
    if (!calls.empty() && calls.back().index == call.index) {
      calls.back().arguments += call.arguments;
    } else {
      calls.push_back(std::move(call));
    }
  }
}

std::string CallId(std::string_view choice, int call) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLength = 9;
  uint64_t hash = XXH3_64bits_withSeed(choice.data(), choice.size(), static_cast<uint64_t>(call));
  std::string id;
  for (size_t i = 0; i < kLength; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
}

std::string ToolUseId(const std::string& call_id) { return kToolUsePrefix + call_id; }

std::string CallIdOf(const std::string& tool_use_id) {
  return std::string(absl::StripPrefix(tool_use_id, kToolUsePrefix));
}

}  // namespace baton
