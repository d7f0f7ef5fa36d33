// Splits a text in pieces and joins the events, with the checks that hold for every answer.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string_view>

#include "tests/text/tools/joined_answer.h"
#include "text/tools/answer_splitter.h"

namespace baton::split_answer {

// Pieces of 1 to max_piece bytes, whose lengths `random` draws.
inline Answer Split(const AnswerFormat& format, bool inside_reasoning, std::string_view text,
                    size_t max_piece, std::mt19937_64& random) {
  AnswerSplitter splitter(format, inside_reasoning);
  Joiner joiner;
  size_t n_pushed = 0, settled = 0, max_held = 0;
  bool goes_on = true;
  while (n_pushed < text.size()) {
    const std::string_view piece = text.substr(n_pushed, 1 + random() % max_piece);
    n_pushed += piece.size();
    joiner.Add(splitter.Push(piece), n_pushed);
    goes_on &= splitter.settled() >= settled;
    settled = splitter.settled();
    max_held = std::max(max_held, n_pushed - settled);
  }
  joiner.Add(splitter.Finish(), n_pushed);
  REQUIRE(joiner.ordered());
  REQUIRE(goes_on);
  REQUIRE(max_held <= AnswerSplitter::kMaxHeld);
  REQUIRE(splitter.settled() == n_pushed);
  REQUIRE(splitter.n_calls() == static_cast<int>(joiner.answer().calls.size()));
  // Calls without arguments have {}.
  REQUIRE(joiner.n_bytes() <= text.size() + 2 * joiner.answer().calls.size());
  return joiner.answer();
}

inline Answer SplitWhole(const AnswerFormat& format, bool inside_reasoning, std::string_view text) {
  AnswerSplitter splitter(format, inside_reasoning);
  Joiner joiner;
  joiner.Add(splitter.Push(text), text.size());
  joiner.Add(splitter.Finish(), text.size());
  REQUIRE(joiner.ordered());
  return joiner.answer();
}

}  // namespace baton::split_answer
