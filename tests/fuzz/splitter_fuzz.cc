// AnswerSplitter: an answer in any pieces gives what it gives as a whole, and no byte is told twice
// or made up.
#include <algorithm>

#include "common/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/text/tools/joined_answer.h"
#include "tests/text/tools/random_answer.h"
#include "text/detokenizer.h"
#include "text/tools/answer_splitter.h"

namespace baton {
namespace {

using split_answer::Answer;
using split_answer::Joiner;

constexpr ToolFormat kTools[] = {ToolFormat::kNone, ToolFormat::kLlama3, ToolFormat::kHermes,
                                 ToolFormat::kMistralList, ToolFormat::kMistralNamed};
constexpr ReasoningFormat kReasoning[] = {ReasoningFormat::kNone, ReasoningFormat::kThinkTags,
                                          ReasoningFormat::kThinkBrackets};

bool IsWhole(std::string_view text) { return ValidUtf8(text) == text; }

// The beginning of `text`, of about `size` bytes, that is not cut inside a character.
std::string_view Piece(std::string_view text, size_t size) {
  size = std::min(size, text.size());
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
  return text.substr(0, size);
}

// next_size: of a piece, 1 or more.
template <typename NextSize>
Answer Split(const AnswerFormat& format, bool inside_reasoning, std::string_view text,
             const NextSize& next_size) {
  const bool is_whole = IsWhole(text);
  AnswerSplitter splitter(format, inside_reasoning);
  Joiner joiner;
  size_t n_pushed = 0, settled = 0;
  const auto add = [&](const std::vector<AnswerEvent>& events) {
    for (const AnswerEvent& event : events) BATON_CHECK(!is_whole || IsWhole(event.text));
    joiner.Add(events, n_pushed);
    BATON_CHECK(splitter.settled() >= settled);
    settled = splitter.settled();
    BATON_CHECK(n_pushed - settled <= AnswerSplitter::kMaxHeld);
  };
  while (n_pushed < text.size()) {
    const std::string_view piece = Piece(text.substr(n_pushed), next_size());
    n_pushed += piece.size();
    add(splitter.Push(piece));
  }
  add(splitter.Finish());
  BATON_CHECK(settled == text.size());
  BATON_CHECK(joiner.ordered());
  BATON_CHECK(splitter.n_calls() == static_cast<int>(joiner.answer().calls.size()));
  // Calls without arguments have {}.
  BATON_CHECK(joiner.n_bytes() <= text.size() + 2 * joiner.answer().calls.size());
  return joiner.answer();
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  const AnswerFormat format = {kTools[input.Below(std::size(kTools))],
                               kReasoning[input.Below(std::size(kReasoning))]};
  const bool inside_reasoning = input.Bool();
  const std::string_view text = input.Rest();
  const auto split = [&](const auto& next_size) {
    return Split(format, inside_reasoning, text, next_size);
  };
  const Answer whole = split([&] { return text.size(); });
  BATON_CHECK(split([] { return 1; }) == whole);
  BATON_CHECK(split([&] { return 1 + input.random()() % 24; }) == whole);
  // The parts of the answer are parts of the text.
  for (const split_answer::Call& call : whole.calls)
    BATON_CHECK(call.arguments == "{}" || text.find(call.arguments) != text.npos);
  if (format == AnswerFormat{}) BATON_CHECK(whole == (Answer{"", std::string(text), {}}));
  if (format.tools == ToolFormat::kNone) BATON_CHECK(whole.calls.empty());
  if (format.reasoning == ReasoningFormat::kNone) BATON_CHECK(whole.reasoning.empty());
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  for (size_t tools = 0; tools < std::size(kTools); ++tools) {
    for (size_t reasoning = 0; reasoning < std::size(kReasoning); ++reasoning) {
      const AnswerFormat format = {kTools[tools], kReasoning[reasoning]};
      for (const std::string_view marker : AllMarkers(format)) seeds.words.emplace_back(marker);
      if (format.tools == ToolFormat::kNone) continue;
      random_answer::Maker maker(format, tools);
      for (int i = 0; i < 12; ++i) {
        const random_answer::Example example = maker.Make();
        seeds.inputs.push_back(std::string{static_cast<char>(tools), static_cast<char>(reasoning),
                                           static_cast<char>(example.inside_reasoning ? 1 : 0)} +
                               example.text);
      }
    }
  }
  for (const char* word : {R"({"name": ")", R"("arguments": )", R"("parameters": )", "\\u0041",
                           "\\\"", "; ", "\xF0\x9F\x98\x80"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
